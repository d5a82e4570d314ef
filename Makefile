# make install   an environment in .venv with everything in it
# make demo      two systems on real text: seven minutes on two idle cores, and six to compare (LANGUAGE=de, cs, fr or zh)
# make demo-char names by characters, with attention via attention, in the same way (LANGUAGE=fr, de or cs)
# make quick     the quick tests: a minute on one core
# make test      the tests: ten minutes on two cores
# make test-more those of examples and benchmarks, those that need Chromium, Node or Marian, and long ones: some minutes
# make test-all  both, and those of every option and seed
# make test-gpu  those that need a GPU
# make check     lint, format and types
# make docs      the site, in site/; with the models that ship as pages after: npm install onnxruntime-web --ignore-scripts
# make clean     remove .venv, demo and site

PYTHON ?= python3
TORCH ?= torch==2.13.0
FAIRSEQ ?= fairseq==0.12.2
# not ?=, because gettext has an environment variable of this name
LANGUAGE = de
QUICK = not slow and not commands and not docs and not more and not hostile and not exhaustive
PIP = .venv/bin/python -m pip install -q

.PHONY: install demo demo-char quick test test-more test-all test-gpu check docs clean

install: .venv/.installed

# torch comes first, so that the build chosen here is the one that everything else finds;
# fairseq comes last and alone, because its own pins do not resolve today. A new version is installed again,
# because pip copies its number
.venv/.installed: pyproject.toml setup.py fairseq_attnvariants/__init__.py
	@echo "Installing into .venv (1 of 3): $(TORCH)"
	$(PYTHON) -m venv .venv
	$(PIP) "$(TORCH)"
	@echo "Installing into .venv (2 of 3): this package and its tools"
	$(PIP) -e ".[fairseq,dev,plot,sweep,export,docs]"
	@echo "Installing into .venv (3 of 3): $(FAIRSEQ), compiled here"
	$(PIP) --no-deps "$(FAIRSEQ)"
	@touch $@

demo: install
	.venv/bin/python examples/demo/demo.py --language $(LANGUAGE)

demo-char: LANGUAGE = fr
demo-char: .venv/.demo
	.venv/bin/python examples/demo/demo_char.py --language $(LANGUAGE)

.venv/.demo: .venv/.installed
	$(PIP) -e ".[demo]"
	@touch $@

quick: install
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m "$(QUICK)"

# two processes of one thread each: more threads than cores wait for one another; who is done first takes of the other's
test: TESTS = -m "not exhaustive and not more"
test-more: TESTS = -m "more and not exhaustive"
test test-more test-all: install
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest $(TESTS) -n 2 --dist worksteal

test-gpu: install
	TEST_GPU=yes .venv/bin/python -m pytest tests/test_gpu.py

check: install
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

docs: install
	.venv/bin/mkdocs build --strict --quiet

clean:
	rm -rf .venv demo site
