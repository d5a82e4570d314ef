// Answers of a page's runtime to the questions in standard input: page.mjs PAGE_JS [ONNXRUNTIME_WEB PACKAGE]
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {join} from "node:path";

const [, , code, web, folder] = process.argv;
const {Moses, Subwords, Translator, trueCase, sentenceCase, SentenceError} = new Function(
  `${readFileSync(code, "utf8")}; return {Moses, Subwords, Translator, trueCase, sentenceCase, SentenceError};`)();
const asked = JSON.parse(readFileSync(0, "utf8"));
let answers;
if (folder) {
  const ort = createRequire(import.meta.url)(join(web, "ort.wasm.min.js"));
  ort.env.wasm.numThreads = 1;
  const read = name => readFileSync(join(folder, name));
  const manifest = JSON.parse(read("manifest.json")), files = {};
  for (const name in manifest.files)
    if (name !== "model.onnx") files[name] = name.endsWith(".json") ? JSON.parse(read(name)) : read(name).toString();
  const session = await ort.InferenceSession.create(read("model.onnx"), {executionProviders: ["wasm"]});
  const translator = new Translator(manifest, files, session, ort);
  answers = [];
  for (const line of asked.lines)
    answers.push(await translator.translate(line, asked.beam).catch(error => {
      if (error instanceof SentenceError) return error.message;
      throw error;
    }));
} else if (asked.outputs) {
  answers = new Translator(asked.manifest, asked.files).read(asked.outputs, asked.symbols, asked.beam);
} else {
  const moses = asked.tables.map(([tables, hyphens, escape]) => new Moses(tables, hyphens, escape));
  const subwords = asked.codes.map(([codes, separator, vocabulary]) => new Subwords(codes, separator, vocabulary));
  answers = asked.lines.map(line => [
    ...moses.flatMap(one => [one.tokenise(line), one.detokenise(one.tokenise(line))]),
    ...subwords.map(one => line.split(" ").filter(Boolean).flatMap(word => one.word(word))),
    trueCase(line.split(" "), asked.cases), sentenceCase(line.split(" ")),
  ]);
}
process.stdout.write(JSON.stringify(answers));
