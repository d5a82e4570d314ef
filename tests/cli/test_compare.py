import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.shown.pages import template
from fairseq_attnvariants_cli.subcommands.compare import Translation, marked, matching, omissions, read_system

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

HARD = """2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading
S-1\tthe sm@@ all <dog>
T-1\tder kleine <hund>
H-1\t-0.5\tder kle@@ ine hund
D-1\t-0.5\tder kle@@ ine hund
P-1\t-0.1 -0.1 -0.1 -0.1 -0.1
A-1\t0-0 1-1 2-2 3-3
H-1\t-0.7\tworse
P-1\t-0.7 -0.7
A-1\t0-0
S-0\ta & b
T-0\tx & y
H-0\t-0.25\tx y
P-0\t-0.1 -0.1 -0.1
A-0\t2-0 2-1
"""


# ---- parts


def test_the_best_hypothesis_with_its_attention_between_words(tmp_path):
    (tmp_path / "file").write_text(HARD)
    outputs = read_system(str(tmp_path / "file"), "@@ ")
    assert sorted(outputs) == [0, 1]
    source, reference, (words, attention) = outputs[1]
    assert (source, reference, words) == (
        ["the", "small", "<dog>"], ["der", "kleine", "<hund>"], ["der", "kleine", "hund"]
    )  # fmt: skip
    assert attention.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def words_html(translation, right):
    return template("parts.html").module.translation(marked(translation, right))


def reference_html(words, found):
    names = ["one", "two"]
    return template("parts.html").module.reference(omissions(words, found, names), names)


def test_words_in_the_order_of_the_reference_match():
    found = matching(["a", "b", "c", "d"], ["a", "x", "c", "y", "d"])
    assert found == ([True, False, True, True], [True, False, True, False, True])
    assert [side.count(True) for side in matching(["b", "a"], ["a", "b"])] == [1, 1]


def test_omissions_are_marked_on_the_reference():
    """A word may be missing although all words of the translation are right."""
    reference, systems = ["den", "großen", "<Mann>"], (["den", "<Mann>"], ["den", "großen", "Hund"])
    found = [matching(words, reference)[1] for words in systems]
    assert reference_html(reference, found) == (
        'den <del title="not in one">großen</del> <del title="not in two">&lt;Mann&gt;</del>'
    )
    assert reference_html(["x"], [[False], [False]]) == '<del class="all" title="not in one, two">x</del>'


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1)))
def test_every_word_is_escaped(words):
    shown = words_html(Translation(words, None), [k % 2 == 0 for k in range(len(words))])
    assert re.fullmatch(r"(<(span|mark)>[^<>]*</\2>( |$))*", shown, flags=re.DOTALL)
    assert [html.unescape(word) for word in re.findall(r"<(?:span|mark)>([^<>]*)</", shown)] == words


def test_faint_attention_is_left_out():
    weights = np.array([[0.04, 0.96], [0.5, 0.5]])
    assert words_html(Translation(["x", "y"], weights), [True, False]) == (
        '<span tabindex="0" data-a="1:0.96">x</span> <mark tabindex="0" data-a="0:0.50 1:0.50">y</mark>'
    )


# ---- the subcommand


@pytest.fixture
def command(tmp_path):
    """A function that writes output with alignments, plain texts, and returns the arguments of the subcommand."""

    def write(**changed):
        files = dict(hard=HARD, bare="x & y\nder hund\n", source="a & b\nthe small <dog>\n")
        files |= dict(reference="x & y\nder kleine <hund>\n")
        for name, text in {**files, **changed}.items():
            (tmp_path / name).write_text(text)
        names = ["--name", "<hard>", "--name", "bare", "--remove-bpe", "--output", tmp_path / "page.html"]
        return [str(part) for part in ("compare", tmp_path / "hard", tmp_path / "bare", *names)]

    return write


def test_the_page_needs_no_network_and_escapes(command, tmp_path):
    assert main(command()) == 0
    page = (tmp_path / "page.html").read_text()
    assert "http:" not in page and "https:" not in page and "default-src 'none'" in page
    assert (
        "<hard>" not in page and "&lt;hard&gt;" in page and "<hund>" not in page and "<span>&lt;dog&gt;</span>" in page
    )
    assert page.index(">a</span> <span>&amp;</span>") < page.index(">the</span>"), "in the order of the text"
    assert '<mark tabindex="0" data-a="2:1.00">hund</mark>' in page


def test_scores_are_those_of_sacrebleu(tmp_path):
    """The table has each system's scores, with p against the first one; sentences are sorted by their scores."""
    gold = ["w x y z a b c", "a & b", *["w x y z"] * 8]
    texts = (["w x y z a q c", "a & b", *["w x y z"] * 8], ["w x q z a q c", "a & b", *["w x q z"] * 8])
    arguments = ["compare", "--tokenize", "none", "--output", str(tmp_path / "page.html")]
    for name, lines in (("source", gold), ("reference", gold), ("one", texts[0]), ("two", texts[1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        arguments += [f"--{name}"] * (lines is gold) + [str(tmp_path / name)]
    assert main(arguments) == 0
    page = (tmp_path / "page.html").read_text()
    rows = re.findall(r"<tr><th>.*?<td>([\d.]+)<td>([\d.]*)<td>([\d.]+)", page)
    for (bleu, _, chrf), lines in zip(rows, texts, strict=True):
        assert bleu == f"{BLEU(tokenize='none').corpus_score(lines, [gold]).score:.2f}"
        assert chrf == f"{CHRF().corpus_score(lines, [gold]).score:.2f}"
    [results] = PairedTest([*zip("12", texts)], {"BLEU": BLEU(tokenize="none")}, [gold], "bs", 1000)()[1:]
    assert [p for _, p, _ in rows] == ["", f"{results['BLEU'][1].p_value:.3f}"]
    assert "<footer>BLEU nrefs:1|bs:1000|seed:12345|case:mixed" in page
    keys = re.findall('data-key="(.*?)"(.*?)>', page)
    for k, (key, same) in enumerate(keys):
        found = [CHRF().sentence_score(lines[k], [gold[k]]).score for lines in texts]
        assert key == f"{k} {len(gold[k].split())} {found[0]:.4f} {found[1]:.4f}"
        assert bool(same) == (texts[0][k] == texts[1][k])
    assert len(keys) == len(gold)


def test_given_texts_are_shown_instead_of_printed_ones(command, tmp_path):
    more = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    arguments = command(source="a & RAW\nthe small\n", reference="x RAW\nder kleine hund\n")
    assert main([*arguments, *map(str, more)]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("RAW") == 2 and '<span tabindex="0" data-a="2:1.00">x</span>' in page
    assert "data-a" not in page[page.index(">small<") :].split("</article>")[0], "two words are not the three of S-1"


@pytest.mark.parametrize("changed, more, message", [
    (dict(bare=""), [], "bare is empty"),
    (dict(bare="x\n"), [], "bare and the reference do not have the same sentences: line 2 is in only one"),
    (dict(hard="bare\n"), [], "no system has the source: give --source"),
    (dict(hard=HARD.replace("S-0\ta & b\n", "")), [], "sentence 0 has 0 S-, 1 T-, 1 H-, 1 P-, 1 A- lines"),
    (dict(hard=HARD.replace("T-0\tx & y\n", "")), [],
        "the source and the reference do not have the same sentences: line 1 is in only one"),
    (dict(hard=HARD.replace("2-0 2-1", "3-0")), [], "A-0: 3-0 is outside the sentences, which have 3 and 2"),
    (dict(bare=HARD.replace("a & b", "a & c")), [], "bare and the systems before it have different sources in line 1"),
    ({}, ["--name", "third"], "3 --name for 2 systems"),
    (dict(hard=HARD.replace("T-0\tx & y", "T-0\t<<unk>> & y")), [], "--tokenize 13a would cut the reference's"),
])  # fmt: skip
def test_bad_input_is_refused(command, tmp_path, refusal, changed, more, message):
    assert message in refusal([*command(**changed), *more])
    assert len(os.listdir(tmp_path)) == 4


def browse(page, script=""):
    """Return the page's HTML after a browser ran its scripts and one more."""
    path, _, place = str(page).partition("#")
    content = Path(path).read_text().replace("</body>", f"<script>{script}</script></body>")
    Path(f"{path}.html").write_text(content)
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{path}.html#{place}"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "</html>" in dom
    return dom


@pytest.mark.commands
@pytest.mark.more
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
class TestInABrowser:
    def order(self, dom):
        return re.findall(r"<h2>(\d+)</h2>", dom)

    def test_sentences_are_sorted(self, command, tmp_path):
        """The keys: line, words, chrF of <hard>, chrF of bare, their difference."""
        assert main(command()) == 0
        page = f"{tmp_path}/page.html"
        assert self.order(browse(page)) == self.order(browse(page + "#0")) == ["1", "2"]
        assert self.order(browse(page + "#0-")) == ["2", "1"]
        assert self.order(browse(page + "#3")) == ["2", "1"]  # bare has the first sentence right
        assert self.order(browse(page + "#4")) == ["2", "1"] and self.order(browse(page + "#4-")) == ["1", "2"]
        clicks = 'const s = document.querySelector("select"); s.value = 3; s.dispatchEvent(new Event("change"));'
        assert self.order(browse(page, clicks)) == ["2", "1"]
        assert self.order(browse(page, 'document.querySelector("button").click();')) == ["2", "1"]

    def test_pointing_at_a_word_shows_its_source(self, command, tmp_path):
        assert main(command()) == 0
        over = 'document.querySelectorAll("mark[data-a]")[0].dispatchEvent(new MouseEvent("%s", {bubbles: true}));'
        dom = browse(tmp_path / "page.html", over % "mouseover")
        lit = re.findall(r'<span style="background: [^"]+">([^<]*)</span>', dom)
        assert lit == ["&lt;dog&gt;"]
        assert not re.search(
            r'style="background: [^"]', browse(tmp_path / "page.html", over % "mouseover" + over % "mouseout")
        )

    def test_the_keyboard_shows_it_too(self, command, tmp_path):
        assert main(command()) == 0
        dom = browse(tmp_path / "page.html", 'document.querySelector("mark[data-a]").focus();')
        assert re.findall(r'<span style="background: [^"]+">([^<]*)</span>', dom) == ["&lt;dog&gt;"]

    def test_sentences_are_searched_and_those_that_differ_are_chosen(self, command, tmp_path):
        """The systems differ only in the second sentence here."""
        assert main(command(bare="x y\nder hund\n")) == 0
        page = tmp_path / "page.html"
        script = """const [text, box] = document.querySelectorAll("input");
                    text.value = "%s"; text.dispatchEvent(new Event("input"));
                    box.checked = %s; box.dispatchEvent(new Event("change"));"""

        def left(word, different):
            dom = browse(page, script % (word, different))
            [count] = re.findall(r"<output>(\d) of 2 sentences</output>", dom)
            return count, re.findall(r"<article [^>]*?hidden[^>]*><h2>(\d+)", dom)

        assert left("", "false") == ("2", []) and left("", "true") == ("1", ["1"])
        assert left("SMALL", "false") == ("1", ["1"]) and left("nowhere", "true") == ("0", ["1", "2"])

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_attended_words_are_readable(self, command, tmp_path, scheme):
        """The contrast is at least 4.5, as WCAG wants, where a word has all of the attention."""
        assert main(command()) == 0
        page = (tmp_path / "page.html").read_text()
        if scheme == "dark":
            page = page.replace("@media (prefers-color-scheme: dark)", "@media all")
        (tmp_path / "page.html").write_text(page)
        script = """const word = document.querySelector("mark[data-a]");
                    word.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
                    const colours = [document.querySelector(".source span[style*=background]"), document.body]
                      .map(element => getComputedStyle(element));
                    document.title = colours[0].color + ";" + colours[0].backgroundColor;"""
        [title] = re.findall(r"<title>(.*?)</title>", browse(tmp_path / "page.html", script))
        ink, paper = (luminance(*map(int, re.findall(r"\d+", colour)[:3])) for colour in title.split(";"))
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5

    def test_a_phone_shows_it_whole(self, command, tmp_path):
        """Nothing is wider than 380 pixels, not even with a long word and a long name."""
        assert main(command(bare="Donaudampfschifffahrtsgesellschaft" * 5 + "\nder hund\n")) == 0
        page = (tmp_path / "page.html").read_text().replace("bare", "a/long/path" * 20)
        frame = f'<body><iframe width="380" height="800" srcdoc="{html.escape(page)}"></iframe></body>'
        (tmp_path / "frame.html").write_text(frame)
        script = """document.querySelector("iframe").addEventListener("load", ({target}) => {
                      const inside = target.contentDocument.documentElement;
                      document.title = inside.clientWidth + " " + inside.scrollWidth; });"""
        [widths] = re.findall(r"<title>(.*?)</title>", browse(tmp_path / "frame.html", script))
        width, needed = map(int, widths.split())
        assert 300 < width == needed


def luminance(*colour):
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
