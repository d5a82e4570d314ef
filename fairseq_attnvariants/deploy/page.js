// The runtime of a page: fairseq_attnvariants_run.py once more, for one sentence at a time. FORMAT.md describes a package.
"use strict";

const LONGEST_LINE = 20000, LONGEST_WORD = 1000, LARGEST_ATTENTION = 2 ** 26, LONGEST_TAG = 100;
// what Python's str.split() and \s take for white space
const WHITE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const RUN = new RegExp(`[${WHITE}]+`, "gu");
const ESCAPES = [["&", "&amp;"], ["|", "&#124;"], ["<", "&lt;"], [">", "&gt;"], ["'", "&apos;"], ['"', "&quot;"],
  ["[", "&#91;"], ["]", "&#93;"]];
const UNESCAPES = [["&bar;", "|"], ["&#124;", "|"], ["&lt;", "<"], ["&gt;", ">"], ["&bra;", "["], ["&ket;", "]"],
  ["&quot;", '"'], ["&apos;", "'"], ["&#91;", "["], ["&#93;", "]"], ["&amp;", "&"]];
const SENTENCE_ENDS = new Set([".", ":", "?", "!"]);
const IN_FRONT = new Set(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"]);

class SentenceError extends Error {}

const split = text => text.split(RUN).filter(Boolean);
const strip = text => text.replace(new RegExp(`^[${WHITE}]+|[${WHITE}]+$`, "gu"), "");
const singleSpaced = text => text.replace(/[ \t\n\v\f\r]+/g, " ").replace(/^ | $/g, "");

class Subwords {
  constructor(codes, separator, vocabulary) {
    const lines = codes.replace(/\n+$/, "").split("\n");
    const version = lines[0].startsWith("#version:") ? split(lines.shift()).at(-1) : "0.1";
    this.endApart = version === "0.1";
    this.ranks = new Map();
    this.merged = new Map();
    lines.map(line => line.replace(/^[\r\n ]+|[\r\n ]+$/g, "")).forEach((merge, rank) => {
      if (!this.ranks.has(merge)) this.ranks.set(merge, rank);
      if (!this.merged.has(merge.replace(" ", ""))) this.merged.set(merge.replace(" ", ""), merge.split(" "));
    });
    this.separator = separator;
    this.vocabulary = vocabulary && vocabulary.length ? new Set(vocabulary) : null;
  }

  word(word) {
    const characters = [...word];
    if (characters.length === 1) return [word];
    if (characters.length > LONGEST_WORD)
      throw new SentenceError(`it has a word of ${characters.length} characters, and at most ${LONGEST_WORD} are allowed`);
    let parts = this.endApart ? [...characters, "</w>"] : [...characters.slice(0, -1), characters.at(-1) + "</w>"];
    for (;;) {
      let best = null, lowest = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`);
        if (rank < lowest) [best, lowest] = [`${parts[i]} ${parts[i + 1]}`, rank];
      }
      if (best === null) break;
      const next = [];
      for (let i = 0; i < parts.length; i++)
        if (`${parts[i]} ${parts[i + 1]}` === best && i + 1 < parts.length) next.push(parts[i] + parts[++i]);
        else next.push(parts[i]);
      parts = next;
    }
    parts.push(parts.pop().replace(/<\/w>$/, ""));
    if (!parts.at(-1)) parts.pop();
    if (this.vocabulary)
      parts = parts.flatMap((part, i) => this.allowed(part, i === parts.length - 1));
    return parts.map((part, i) => i < parts.length - 1 ? part + this.separator : part);
  }

  allowed(part, final) {
    const pair = this.merged.get(part + (final ? "</w>" : ""));
    if (this.vocabulary.has(final ? part : part + this.separator) || !pair) return [part];
    const right = final ? pair[1].replace(/<\/w>$/, "") : pair[1];
    return [...this.allowed(pair[0], false), ...(right ? this.allowed(right, final) : [])];
  }
}

class Moses {
  constructor(tables, hyphens, escape) {
    const ranges = name => {
      const ends = [...tables[name]].map(c => `\\u{${c.codePointAt(0).toString(16)}}`);
      return ends.map((end, i) => i % 2 ? `-${end}` : end).join("");
    };
    const [alnum, alpha, lower, number, currency, cjk] =
      ["alnum", "alpha", "lower", "number", "currency", "cjk"].map(ranges);
    const rule = (text, flags = "gu") => new RegExp(text, flags);
    this.language = tables.language;
    this.prefixes = new Set(tables.prefixes);
    this.numeric = new Set(tables.numeric);
    this.escape = escape;
    this.alpha = rule(`[${alpha}]`, "u");
    this.alphaFirst = rule(`^[${alpha}]`, "u");
    this.lowerFirst = rule(`^[${lower}]`, "u");
    this.cjk = rule(`^[${cjk}]`, "u");
    this.opening = rule(`^[${currency}(\\[\\{¿¡]+$`, "u");
    this.contraction = rule(`[${alpha}]'$`, "u");
    this.others = rule(`([^${alnum}${WHITE}.'\`,\\-])`);
    this.hyphen = hyphens ? rule(`([${alnum}])-(?=[${alnum}])`) : null;
    const a = `([${alpha}])`, other = `([^${alpha}])`;
    this.rules = [[rule(`([^${number}]),`), "$1 , "], [rule(`,([^${number}])`), " , $1"], [rule(`([${number}]),$`), "$1 , "]];
    if (this.language === "en")
      this.rules.push([rule(`${other}'${other}`), "$1 ' $2"], [rule(`([^${alpha}${number}])'${a}`), "$1 ' $2"],
        [rule(`${a}'${other}`), "$1 ' $2"], [rule(`${a}'${a}`), "$1 '$2"], [rule(`([${number}])'(s)`), "$1 '$2"]);
    else if (["fr", "it"].includes(this.language))
      this.rules.push([rule(`${other}'${other}`), "$1 ' $2"], [rule(`${other}'${a}`), "$1 ' $2"],
        [rule(`${a}'${other}`), "$1 ' $2"], [rule(`${a}'${a}`), "$1' $2"]);
    else this.rules.push([/'/g, " ' "]);
  }

  tokenise(text) {
    text = strip(text.replace(RUN, " ").replace(/[\x00-\x1f]/g, "")).replace(this.others, " $1 ");
    if (this.hyphen) text = text.replace(this.hyphen, "$1 @-@ ");
    const end = text.length;
    text = text.replace(/\.{2,}/g, (dots, at) =>
      ` ${"DOT".repeat(dots.length)}MULTI${at + dots.length < end ? " " : ""}`);
    for (const [rule, by] of this.rules) text = text.replace(rule, by);
    const words = split(text);
    text = words.map((word, i) => this.fullStop(word, words[i + 1] ?? "")).join(" ");
    text = text.replace(/\.' ?$/, " . ' ");
    text = text.replace(/(?:DOT)+MULTI/g, dots => ".".repeat((dots.length - 5) / 3));
    if (this.escape) for (const [character, name] of ESCAPES) text = text.replaceAll(character, name);
    return split(text);
  }

  fullStop(word, following) {
    const stem = word.replace(/\.$/, "");
    if (!stem || stem === word || (stem.includes(".") && this.alpha.test(stem)) || this.prefixes.has(stem)) return word;
    if (this.lowerFirst.test(following) || (this.numeric.has(stem) && /^[0-9]/.test(following))) return word;
    return `${stem} .`;
  }

  detokenise(symbols) {
    let text = ` ${symbols.join(" ")} `.replaceAll(" @-@ ", "-");
    for (const [name, character] of UNESCAPES) text = text.replaceAll(name, character);
    const words = split(text), quotes = {};
    let space = " ";
    text = "";
    words.forEach((word, i) => {
      const before = words[i - 1] ?? "", after = words[i + 1] ?? "";
      let left = false, right = false;
      if (this.cjk.test(word) && this.language !== "ko") left = before !== "" && this.cjk.test([...before].at(-1));
      else if (this.opening.test(word)) right = true;
      else if (/^[,.?!:;\\%})\]]+$/.test(word)) {
        left = true;
        if (this.language === "fr" && "?!:;\\%".includes(word)) text += " ";
      } else if (this.language === "en" && before && word[0] === "'" && this.alphaFirst.test(word.slice(1))) left = true;
      else if (["fr", "it", "ga"].includes(this.language) && this.contraction.test(word)) right = this.alphaFirst.test(after);
      else if (/^['"„“`]+$/.test(word)) {
        const kind = /^[„“]+$/.test(word) ? '"' : word;
        if (this.language === "cs" && (word === "„" || word === "“")) quotes[kind] = "„“".indexOf(word);
        const closing = (quotes[kind] ?? 0) % 2 === 1;
        const possessive = this.language === "en" && word === "'" && before.endsWith("s") && !closing;
        [left, right] = [closing || possessive, !closing && !possessive];
        quotes[kind] = (quotes[kind] ?? 0) + (possessive ? 0 : 1);
      }
      text += (left ? "" : space) + word;
      space = right ? "" : " ";
    });
    return strip(text.replace(/ {2,}/g, " "));
  }
}

function trueCase(words, cases) {
  return words.map(word => {
    const at = word.indexOf("|"), stem = at < 0 ? word : word.slice(0, at);
    if (!stem || new RegExp(`<[^${WHITE}][^>]*>`, "u").test(word)) return word;
    const lower = stem.toLowerCase();
    return (Object.hasOwn(cases, lower) ? cases[lower] : stem) + word.slice(stem.length);
  });
}

function sentenceCase(words) {
  let first = true;
  return words.map(word => {
    const [letter = "", ...others] = word, cased = first ? letter.toUpperCase() + others.join("") : word;
    first = SENTENCE_ENDS.has(word) || (first && IN_FRONT.has(word));
    return cased;
  });
}

class Translator {
  // files: by name, JSON parsed and `codes` as text; session: of onnxruntime-web, whose module is `ort`
  constructor(manifest, files, session, ort) {
    Object.assign(this, {manifest, session, ort, search: manifest.search, end: manifest.source.end});
    const {eos, unk} = manifest.special, {tokenizer, bpe, truecase} = manifest.text;
    Object.assign(this, {eos, unk});
    this.source = files[manifest.source.symbols];
    this.target = files[manifest.target.symbols];
    this.index = new Map();
    this.source.forEach((symbol, i) => { if (i > unk) this.index.set(symbol, i); });
    this.index.set(this.source[unk], unk);
    const {features: first = this.source.length, features_after: after = false} = manifest.source;
    this.features = this.source.slice(first);
    this.after = after;
    const letters = this.source.slice(unk + 1, first);
    this.readable = new Set(letters);
    this.longest = letters.reduce((most, symbol) => Math.max(most, [...symbol].length), 1);
    this.known = new Set(this.target.slice(unk + 1));
    const side = name => new Moses(files[tokenizer[name]], tokenizer.hyphens, tokenizer.escape);
    this.moses = tokenizer && tokenizer !== "none" ? {source: side("source"), target: side("target")} : null;
    this.cases = truecase ? files[truecase.source] : null;
    this.subwords = bpe ? new Subwords(files[bpe.codes], bpe.separator, bpe.vocabulary && files[bpe.vocabulary]) : null;
  }

  symbols(line) {
    const length = [...line].length;
    if (length > LONGEST_LINE)
      throw new SentenceError(`it has ${length} characters, and at most ${LONGEST_LINE} are allowed: split it`);
    const symbols = this.features.length ? this.withFeatures(line) : this.letters(line);
    const largest = this.search.largest_source - this.end.length;
    if (symbols.length > largest)
      throw new SentenceError(`it has ${symbols.length} symbols, and the model reads at most ${largest}: split it`);
    return symbols;
  }

  // features come after a tab in a line, and before its letters in what is returned
  withFeatures(line) {
    const [text, ...rest] = line.split("\t");
    const letters = this.letters(text).map(symbol => this.features.includes(symbol) ? this.source[this.unk] : symbol);
    if (!letters.length) return [];
    if (!rest.length) throw new SentenceError("it has no features: they come after a tab, such as N;PL");
    return [...this.tags(rest.join("\t").normalize("NFC")), ...letters];
  }

  // the symbols of features, whose tags may be in layers
  tags(text) {
    const found = new Set(), layers = [], unmatched = new SentenceError("the parentheses of its features do not match");
    for (const [, name = "", opens = "", mark] of text.matchAll(/([^();,]+)(\(?)|([();,])/gu)) {
      const tag = strip(name);
      if (tag) {
        found.add(layers.length && !opens ? `[${layers.at(-1)}(${tag})]` : `[${tag}]`);
        if (opens) layers.push(tag);
      } else if (mark === ")" && layers.length) layers.pop();
      else if (opens || mark === "(" || mark === ")") throw unmatched;
    }
    if (layers.length) throw unmatched;
    const unknown = [...found].filter(tag => !this.features.includes(tag)).map(tag => tag.slice(1, -1));
    if (unknown.length)
      throw new SentenceError(`the model does not know its feature ${[...unknown[0]].slice(0, LONGEST_TAG).join("")}: leave it out`);
    return this.features.filter(tag => found.has(tag));
  }

  letters(line) {
    if (this.manifest.text.lowercase) line = line.toLowerCase();
    if (this.moses) line = this.moses.source.tokenise(line).join(" ");
    if (this.cases) line = trueCase(split(line), this.cases).join(" ");
    const {units} = this.manifest.source;
    if (units === "characters") return [...singleSpaced(line)];
    if (units === "decomposed") return [...strip(line).normalize("NFD")];
    if (units === "graphemes") return this.graphemes([...strip(line).normalize("NFC")]);
    const words = units === "spaced" ? strip(line).normalize("NFC").split(" ").filter(Boolean) : split(line);
    return this.subwords ? words.flatMap(word => this.subwords.word(word)) : words;
  }

  // the longest symbols that the dictionary has, or else characters
  graphemes(points) {
    const found = [];
    for (let i = 0, n; i < points.length; i += n) {
      for (n = Math.min(this.longest, points.length - i); n > 1 && !this.readable.has(points.slice(i, i + n).join("")); n--);
      found.push(points.slice(i, i + n).join(""));
    }
    return found;
  }

  line(symbols) {
    const {units} = this.manifest.target;
    const spaced = units === "words" || units === "spaced";
    let line = symbols.join(spaced ? " " : "");
    if (units === "characters") line = singleSpaced(line);
    else if (!spaced) line = line.normalize("NFC");
    else if (this.subwords) line = strip(`|${(line + " ").replaceAll(this.subwords.separator + " ", "")}`).slice(1);
    if (this.cases) line = sentenceCase(split(line)).join(" ");
    return this.moses ? this.moses.target.detokenise(split(line)) : line;
  }

  async translate(line, beam = this.search.beam) {
    const symbols = this.symbols(line);
    if (!symbols.length) return {source: [this.source[this.eos]], words: null, nBest: []};
    const {ort} = this, row = [...symbols.map(symbol => this.index.get(symbol) ?? this.unk), ...this.end];
    if (this.after) row.push(...row.splice(0, this.count(symbols)));
    const longest = Math.trunc(Math.min(this.search.max_len_a * row.length + this.search.max_len_b, this.search.largest_target - 1));
    const most = Math.max(0, this.search.min_len, longest);
    if (row.length * (most + 1) * beam > LARGEST_ATTENTION)
      throw new SentenceError("it is too long for this beam: split it, or take a smaller beam");
    const whole = (values, shape) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
    const out = await this.session.run({
      source: whole(row, [1, row.length]), beam: whole([beam], []), max_len: whole([most], [1]),
      min_len: whole([this.search.min_len], []), unkpen: new ort.Tensor("float32", [this.search.unkpen], []),
    });
    return this.read(out, symbols, beam);
  }

  // how many symbols are features, the first ones
  count(symbols) {
    return symbols.filter(symbol => this.features.includes(symbol)).length;
  }

  read(out, symbols, beam) {
    const features = this.count(symbols), first = this.after ? 0 : features;
    if (this.after) symbols = symbols.slice(features);  // they are beyond the columns that are read
    const source = [...symbols, ...this.end.map(i => this.source[i])];
    const words = out.word_attention ? [...source.slice(first, -1).join("").split(" ").filter(Boolean), source.at(-1)] : null;
    const at = (name, t, j) => Number(out[name].data[t * beam + j]);
    const looks = (name, t, j, width) => {
      const {data, dims} = out[name], start = (t * beam + j) * dims[3];
      return Array.from(data.slice(start, start + width));
    };
    const ended = [];
    for (let t = 0; t < out.words.dims[0]; t++)
      for (let j = 0; j < beam; j++) if (out.ended.data[t * beam + j] && ended.length < beam) ended.push([t, j]);
    const nBest = ended.map(([t, j]) => {
      const indices = [this.eos], total = at("ended_scores", t, j), attention = [], wordAttention = [];
      let row = at("ended_parents", t, j);
      for (let s = t; s >= 0; s--) {
        if (s < t) {
          indices.unshift(at("words", s, row));
          row = at("parents", s, row);
        }
        attention.unshift(looks("attention", s, row, source.length));
        if (words) wordAttention.unshift(looks("word_attention", s, row, words.length));
      }
      const score = this.search.normalize ? total / (t + 1) ** this.search.lenpen : total;
      const {chosen, replaced} = this.replace(indices, symbols, attention, first);
      return {text: this.line(chosen.slice(0, -1)), score, symbols: chosen, replaced, attention,
        wordAttention: words ? wordAttention : null};
    });
    return {source, words, nBest: nBest.sort((a, b) => b.score - a.score)};
  }

  // a feature is nothing to copy
  replace(indices, read, attention, first) {
    const symbols = read.slice(first);
    const replaced = [], chosen = indices.map((index, i) => {
      if (index !== this.unk) return this.target[index];
      replaced.push(i);
      let looks = attention[i].slice(first, read.length);
      if (this.manifest.copies) {
        const lacking = looks.map((weight, s) => this.known.has(symbols[s]) ? 0 : weight);
        if (lacking.some(weight => weight > 0)) looks = lacking;
      }
      return symbols[looks.indexOf(Math.max(...looks))];
    });
    return {chosen, replaced};
  }
}
