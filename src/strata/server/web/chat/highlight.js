// Colours for code. A language is fetched from this server when a block first names it; until then the code is plain.

import hljs from "../vendor/highlight/core.min.js";

const FILES = {
  bash: "bash",
  sh: "bash",
  shell: "bash",
  zsh: "bash",
  console: "bash",
  c: "c",
  h: "c",
  cpp: "cpp",
  "c++": "cpp",
  cc: "cpp",
  hpp: "cpp",
  cuda: "cpp",
  cu: "cpp",
  csharp: "csharp",
  cs: "csharp",
  "c#": "csharp",
  css: "css",
  scss: "css",
  diff: "diff",
  patch: "diff",
  dockerfile: "dockerfile",
  docker: "dockerfile",
  go: "go",
  golang: "go",
  ini: "ini",
  toml: "ini",
  java: "java",
  javascript: "javascript",
  js: "javascript",
  jsx: "javascript",
  mjs: "javascript",
  json: "json",
  jsonc: "json",
  json5: "json",
  kotlin: "kotlin",
  kt: "kotlin",
  lua: "lua",
  makefile: "makefile",
  make: "makefile",
  markdown: "markdown",
  md: "markdown",
  php: "php",
  powershell: "powershell",
  ps1: "powershell",
  python: "python",
  py: "python",
  r: "r",
  ruby: "ruby",
  rb: "ruby",
  rust: "rust",
  rs: "rust",
  sql: "sql",
  swift: "swift",
  typescript: "typescript",
  ts: "typescript",
  tsx: "typescript",
  xml: "xml",
  html: "xml",
  svg: "xml",
  yaml: "yaml",
  yml: "yaml",
};
const LONGEST = 60_000; // characters; more than that would hold up the page

const waiting = new Map(); // language to the promise of its grammar
const listeners = new Set();

/** What a block's first word means: the grammar's name, or "" if there is none. */
export function language(word) {
  return Object.hasOwn(FILES, word.toLowerCase()) ? FILES[word.toLowerCase()] : "";
}

/** Code as HTML with classes, or null while there is no grammar for it. `name` is what `language` gave. */
export function highlight(code, name) {
  if (!name || code.length > LONGEST) return null;
  if (!hljs.getLanguage(name)) {
    if (!waiting.has(name)) waiting.set(name, fetchGrammar(name));
    return null;
  }
  return hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
}

/** Be called with the name of a grammar that has arrived. */
export function onGrammar(listener) {
  listeners.add(listener);
}

async function fetchGrammar(name) {
  try {
    const grammar = await import(`../vendor/highlight/languages/${name}.min.js`);
    hljs.registerLanguage(name, grammar.default);
  } catch {
    return; // the code stays plain
  }
  for (const listener of listeners) listener(name);
}
