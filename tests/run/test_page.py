"""The page is one file, and its JavaScript gives the results of the Python runtime."""

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import browser
import numpy as np
import packages
import pytest
import test_text
from packages import SPECIAL, WORDS, runtime

from fairseq_attnvariants.deploy import moses, page
from fairseq_attnvariants.registry import ConfigurationError

HERE = Path(__file__).parent
CODE = Path(page.__file__).with_name("page.js")


def in_node(asked, *folders):
    """Return the answers of the page's runtime in Node."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    made = subprocess.run(
        ["node", HERE / "page.mjs", CODE, *folders],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


@pytest.fixture
def web():
    """The folder of onnxruntime-web, if it is installed."""
    try:
        return page.find_onnxruntime_web()
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.fixture
def unreal_web(tmp_path):
    """A folder with the files of onnxruntime-web, without their content."""
    folder = tmp_path / "web" / "dist"
    folder.mkdir(parents=True)
    for name in (page.PROGRAM, page.LOADER, page.ENGINE):
        (folder / name).write_text(f"// {name} </script> </SCRIPT> <!-- \n//# sourceMappingURL=x.map")
    return tmp_path / "web"


def tables():
    """Return tables of sacremoses, or similar ones if it is not installed."""
    languages = ["en", "fr", "cs", "de"]
    try:
        return [moses.moses_tables(language) for language in [*languages, "ja", "ko"]]
    except ConfigurationError:
        return [test_text.tables(language) for language in languages]


@pytest.mark.more
@pytest.mark.commands
def test_javascript_makes_the_same_words_and_subwords():
    codes = "#version: 0.2\nt h\nth e</w>\ni n\na n\nin g</w>\nan d</w>\no n</w>\n"
    merges = [
        [codes, "@@", None],
        [codes.split("\n", 1)[1], "~", None],
        [codes, "@@", ["th@@", "e", "i@@", "n@@", "g"]],
    ]
    settings = [[table, hyphens, escape] for table in tables() for hyphens, escape in ((False, True), (True, False))]
    cases = {"the": "The", "readme": "README", "i": "I"}
    lines = test_text.LINES[::10] + test_text.jumbled(1000) + test_text.JAPANESE
    answers = in_node({"tables": settings, "codes": merges, "cases": cases, "lines": lines})
    tokenisers = [runtime.Moses(*one) for one in settings]
    subwords = [runtime.Subwords(*one) for one in merges]
    assert len(lines) > 1000
    for line, answer in zip(lines, answers, strict=True):
        words = line.split(" ")
        expected = []
        for one in tokenisers:
            expected += [one.tokenise(line), one.detokenise(one.tokenise(line))]
        expected += [one([word for word in words if word]) for one in subwords]
        assert answer == [*expected, runtime.true_case(words, cases), runtime.sentence_case(words)], line


def same(package, web, lines, beam):
    """Assert that translations of a package in Node equal those in Python."""
    translator = runtime.Translator(package)
    answers = in_node({"lines": lines, "beam": beam}, web, package)
    for line, answer in zip(lines, answers, strict=True):
        try:
            (found,) = translator.translate([line], beam, n_best=beam)
        except runtime.SentenceError as error:
            assert str(error) == f"line 1: {answer}"
            continue
        assert answer["source"] == found.source
        for one, other in zip(found.n_best if answer["nBest"] else [], answer["nBest"], strict=True):
            assert (other["text"], other["symbols"], other["replaced"]) == (one.text, one.symbols, one.replaced)
            np.testing.assert_allclose(other["score"], one.score, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(other["attention"], one.attention, atol=1e-4)


@pytest.mark.more
@pytest.mark.commands
@pytest.mark.parametrize("beam", [1, 3])
def test_javascript_translates_the_same(tmp_path, web, beam):
    lines = ["the red dogs", "", "zebra saw . ", "the " * 60, "a" * 20_001, "</s> <unk> the"]
    same(packages.write(tmp_path / "words"), web, lines, beam)
    symbols = [*SPECIAL, " ", *"abcé\u3000"]
    about = dict(source__units="characters", target__units="characters", source__end=[4, 2])
    package = packages.write(tmp_path / "characters", source=symbols, target=symbols, **about)
    same(package, web, [" ab \t\u3000é  zc ", "a\U0001f600b", "abc", *test_text.JAPANESE], beam)
    for units, symbols in packages.STRINGS.items():
        known = [*SPECIAL, " ", *symbols]
        about = dict(source__units=units, target__units=units)
        package = packages.write(tmp_path / units, source=known, target=known, **about)
        same(package, web, packages.STRING_LINES, beam)
    known = [*SPECIAL, *packages.FEATURED]
    for units, after in (("graphemes", True), ("decomposed", False), ("words", False)):
        about = dict(source__units=units, target__units=units, source__features=8, source__features_after=after)
        about["format"] = 2
        package = packages.write(tmp_path / f"featured-{units}", source=known, target=known, **about)
        same(package, web, packages.FEATURED_LINES, beam)


@pytest.mark.more
@pytest.mark.commands
def test_a_browser_translates_what_the_address_says(tmp_path, web):
    if not browser.program():
        pytest.skip("no browser: apt-get install chromium")
    made = page.build_page(packages.write(tmp_path / "package"), web)
    with browser.opened(f"{made.as_uri()}#the%20zebra%20saw", tmp_path / "profile") as evaluate:
        until = "new Promise(done => setInterval(() => document.querySelector('#list li') && done(), 50))"
        evaluate(until)
        assert evaluate("document.getElementById('translation').textContent") == "the zebra saw"
        assert evaluate("[...document.querySelectorAll('#target .replaced')].map(e => e.textContent)") == ["zebra"]
        assert evaluate("document.querySelectorAll('#map rect').length") == 4 + 1  # attended positions, and a frame
        evaluate("document.querySelectorAll('#list button')[1].click()")
        assert evaluate("document.getElementById('translation').textContent") == "red zebra th@@"
        evaluate("document.querySelectorAll('#target span')[2].focus()")
        weights = (
            "[...document.querySelectorAll('#source span')].map(e => Number(e.style.getPropertyValue('--weight')))"
        )
        assert evaluate(weights) == [0, 0, 0.85, 0]
        typed = "element('sentence').value = 'the ' + 'a'.repeat(1001) + ' b'.repeat(60); update()"
        evaluate(typed)
        assert evaluate("element('state').textContent").startswith("The sentence is not translated: it has 62 symbols")


@pytest.mark.more
@pytest.mark.commands
def test_a_browser_has_a_field_for_features(tmp_path, web):
    """Features that are pasted behind a word move to their field."""
    if not browser.program():
        pytest.skip("no browser: apt-get install chromium")
    known = [*SPECIAL, *packages.FEATURED]
    about = dict(format=2, source__units="graphemes", target__units="graphemes", source__features=8)
    made = page.build_page(packages.write(tmp_path / "package", source=known, target=known, **about), web)
    with browser.opened(f"{made.as_uri()}#ab%09N;PL", tmp_path / "profile") as evaluate:
        evaluate("new Promise(done => setInterval(() => document.querySelector('#list li') && done(), 50))")
        assert evaluate("[element('sentence').value, element('tags').value]") == ["ab", "N;PL"]
        assert evaluate("element('known').textContent") == "Known features: N, PL, PSS, PSS(PL), é"
        sources = "[...document.querySelectorAll('#source span')].map(e => e.textContent)"
        assert evaluate(sources) == ["[N]", "[PL]", "a", "b", "</s>"]
        evaluate("element('tags').value = 'N;X'; update()")
        assert "the model does not know its feature X" in evaluate("element('state').textContent")


def unpacked(text, name):
    return gzip.decompress(base64.b64decode(re.search(f'id="{name}">([^<]*)<', text)[1]))


def test_a_page_holds_the_package(tmp_path, unreal_web):
    package = packages.write(tmp_path / "package", about__title="<b>Dogs</b> & more", about__license="CC BY 2.0")
    made = page.build_page(package, unreal_web)
    assert made == package / "translate.html"
    text = made.read_text()
    assert unpacked(text, "model") == (package / "model.onnx").read_bytes()
    held = json.loads(unpacked(text, "package"))
    assert held["manifest"] == json.loads((package / "manifest.json").read_text())
    assert held["files"] == dict.fromkeys(("source.json", "target.json"), SPECIAL + WORDS)
    assert "<title>&lt;b&gt;Dogs&lt;/b&gt; &amp; more</title>" in text
    assert "license: CC BY 2.0." in text
    assert not re.search(r"\$[a-z]+\b", re.sub("<script>.*?</script>", "", text, flags=re.DOTALL))
    assert text.count("</script>") == text.count("<script") == 7 and "</SCRIPT>" not in text
    assert "sourceMappingURL" not in text
    assert page.build_page(package, unreal_web).read_text() == text  # equal packages give equal pages
    assert runtime.Translator(package).translate(["the red"])[0].text == "the red"


@pytest.mark.parametrize(
    "units, capitals", [("words", "sentences"), ("spaced", "off"), ("graphemes", "off"), ("decomposed", "off")]
)
def test_a_phone_writes_no_capitals_into_strings(tmp_path, unreal_web, units, capitals):
    package = packages.write(tmp_path / "package", source__units=units)
    assert f'autocapitalize="{capitals}" dir="auto"' in page.build_page(package, unreal_web).read_text()


def test_a_page_asks_for_nothing_outside(tmp_path, unreal_web):
    text = page.build_page(packages.write(tmp_path / "package"), unreal_web).read_text()
    assert not re.search(r"""(src|href)=|https?://(?!www\.w3\.org/2000/svg)|\bfetch\(|@import|url\(""", text)


def test_a_page_without_onnxruntime_web_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = packages.write(tmp_path / "package")
    for folder in (None, tmp_path):
        with pytest.raises(ConfigurationError, match="npm install onnxruntime-web --ignore-scripts"):
            page.build_page(package, folder)
    assert not list(package.glob("translate.html*"))


def test_a_page_of_a_damaged_package_is_refused(tmp_path, unreal_web):
    package = packages.write(tmp_path / "package")
    (package / "source.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="source.json is not the file that was exported"):
        page.build_page(package, unreal_web)
    assert not list(package.glob("translate.*m*"))


def test_a_page_of_a_strangers_package_reads_and_writes_nothing_else(tmp_path, unreal_web):
    package, victim = packages.write(tmp_path / "package"), tmp_path / "victim"
    victim.write_text("mine")
    (package / "translate.tmp").symlink_to(victim)
    assert not page.build_page(package, unreal_web).is_symlink() and victim.read_text() == "mine"
    manifest = json.loads((package / "manifest.json").read_text())
    (package / "link.json").symlink_to(victim)
    about = {"sha256": hashlib.sha256(b"mine").hexdigest(), "bytes": 4}
    for change in (
        {"files": {**manifest["files"], "../victim": about}},
        {"files": {"link.json": about}},
        {"format": 99},
    ):
        (package / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(ConfigurationError, match="cannot be a file of a package|format 99, and a page needs 1 or"):
            page.build_page(package, unreal_web)


@pytest.mark.more
@pytest.mark.commands
@pytest.mark.parametrize("copies, normalize, lenpen, more", [
    (False, True, 2.0, {}),
    (True, False, 2.0, {}),
    (False, True, 1.0, dict(format=2, source__features=8, source__features_after=False)),
    (True, True, 1.0, dict(format=2, source__features=8, source__features_after=True)),
])  # fmt: skip
def test_javascript_reads_outputs_as_python_does(tmp_path, copies, normalize, lenpen, more):
    """Outputs have unequal lengths, more ended hypotheses than the beam, two levels and unknown symbols."""
    symbols = [*SPECIAL, " ", *"abc", "[N]"]
    about = dict(source__units="characters", target__units="characters", source__end=[4, 2], copies=copies, **more)
    about |= dict(search__normalize=normalize, search__lenpen=lenpen)
    translator = runtime.Translator(packages.write(tmp_path, source=symbols, target=symbols, **about))
    rng, read, T, k = np.random.default_rng(1), [*["[N]"] * bool(more), *"ab zc"], 6, 3
    out = {name: rng.integers(0, k, (T, 1, k)) for name in ("parents", "ended_parents")}
    out["words"] = rng.integers(3, 6, (T, 1, k))
    out |= {name: -rng.random((T, 1, k)) for name in ("scores", "ended_scores")}
    out["ended"] = rng.random((T, 1, k)) < 0.5
    out |= {"attention": rng.random((T, 1, k, len(read) + 2)), "word_attention": rng.random((T, 1, k, 4))}
    assert out["ended"].sum() > k
    asked = {"manifest": translator.manifest, "files": dict.fromkeys(("source.json", "target.json"), symbols)}
    asked["outputs"] = {name: {"data": one.ravel().tolist(), "dims": one.shape} for name, one in out.items()}
    answer = in_node({**asked, "symbols": read, "beam": k})
    found = translator._sentence(out, 0, read, k, True)
    assert (answer["source"], answer["words"]) == (found.source, found.words)
    assert any(one.replaced for one in found.n_best)
    for one, other in zip(found.n_best, answer["nBest"], strict=True):
        assert (other["text"], other["symbols"], other["replaced"]) == (one.text, one.symbols, one.replaced)
        np.testing.assert_allclose(other["score"], one.score)
        np.testing.assert_allclose(other["attention"], one.attention)
        np.testing.assert_allclose(other["wordAttention"], one.word_attention)


def test_notes_are_escaped_and_scripts_hold_no_comment(tmp_path, unreal_web):
    notes = dict(about__license="<i>MIT</i>", about__trained="a & b", source__language="<b>", target__language="<u>")
    text = page.build_page(packages.write(tmp_path / "package", **notes), unreal_web).read_text()
    assert "license: &lt;i&gt;MIT&lt;/i&gt;." in text and "trained: a &amp; b." in text
    assert not re.search("<(i|b|u)>", text) and "&lt;b&gt;" in text and "&lt;u&gt;" in text
    scripts = re.findall("<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)
    assert len(scripts) == 7 and not any("<!--" in one for one in scripts)
