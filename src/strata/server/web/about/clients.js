// What to put into clients so that they use this server. The key is never written out: a page may be shown to others.

const QUESTION = "Count from 1 to 5.";

/**
 * @param {{base: string, model: string, several: boolean, context: number|null, keyed: boolean}} server  `base` without
 *   a last slash; `several`: whether the name of the model matters
 * @returns {{title: string, parts: {words?: string, code?: string, language?: string}[]}[]}
 */
export function clients(server) {
  const given = { ...server, key: server.keyed ? "YOUR_KEY" : "none", openai: `${server.base}/v1` };
  return [curl, openai, anthropic, claudeCode, codex, cline, openWebui].map((client) => client(given));
}

function curl({ openai, keyed, key, several, model }) {
  const body = JSON.stringify({ ...(several ? { model } : {}), messages: [{ role: "user", content: QUESTION }] });
  const head = keyed ? ` -H "Authorization: Bearer ${key}"` : "";
  return { title: "curl", parts: [code("bash", `curl -s ${openai}/chat/completions${head} \\`, `  -d '${body}'`)] };
}

function openai({ openai: base, key, model }) {
  return {
    title: "Python, openai",
    parts: [
      code(
        "python",
        "from openai import OpenAI",
        "",
        `client = OpenAI(base_url="${base}", api_key="${key}")`,
        `question = {"role": "user", "content": "${QUESTION}"}`,
        `reply = client.chat.completions.create(model="${model}", messages=[question])`,
        "print(reply.choices[0].message.content)",
      ),
    ],
  };
}

function anthropic({ base, key, model }) {
  return {
    title: "Python, anthropic",
    parts: [
      code(
        "python",
        "from anthropic import Anthropic",
        "",
        `client = Anthropic(base_url="${base}", api_key="${key}")`,
        `question = {"role": "user", "content": "${QUESTION}"}`,
        `reply = client.messages.create(model="${model}", max_tokens=1000, messages=[question])`,
        "print(reply.content[0].text)",
      ),
    ],
  };
}

function claudeCode({ base, key, model, several }) {
  return {
    title: "Claude Code",
    parts: [
      { words: "In the shell that starts it, or under env in its settings file." },
      code(
        "bash",
        `export ANTHROPIC_BASE_URL=${base}`,
        `export ANTHROPIC_AUTH_TOKEN=${key}`,
        `export ANTHROPIC_MODEL=${model}`,
        several && `export ANTHROPIC_DEFAULT_HAIKU_MODEL=${model}  # for its small tasks`,
        "claude",
      ),
    ],
  };
}

function codex({ openai: base, key, keyed, model }) {
  const file = code(
    "toml",
    `model = "${model}"`,
    'model_provider = "strata"',
    "",
    "[model_providers.strata]",
    'name = "Strata"',
    `base_url = "${base}"`,
    'wire_api = "responses"',
    keyed && 'env_key = "STRATA_KEY"',
  );
  const shell = code("bash", `export STRATA_KEY=${key}`, "codex");
  return { title: "Codex", parts: [{ words: "In ~/.codex/config.toml:" }, file, ...(keyed ? [shell] : [])] };
}

function cline({ openai: base, key, model, context }) {
  return {
    title: "Cline",
    parts: [
      { words: "In its settings, with “OpenAI Compatible” as the API provider:" },
      code(
        "text",
        `Base URL        ${base}`,
        `API Key         ${key}`,
        `Model ID        ${model}`,
        context && `Context Window  ${context}`,
      ),
    ],
  };
}

function openWebui({ base, openai: address, key }) {
  const port = new URL(base).port || "80";
  return {
    title: "Open WebUI",
    parts: [
      { words: "Without a container, as environment:" },
      code("bash", `export OPENAI_API_BASE_URL=${address}`, `export OPENAI_API_KEY=${key}`),
      { words: "In a container on this machine; the server then has to listen beyond it, and to demand a key:" },
      code(
        "bash",
        `strata serve --host 0.0.0.0 --port ${port} --api-key YOUR_KEY`,
        "docker run -d --name open-webui -p 3000:8080 \\",
        "  --add-host=host.docker.internal:host-gateway \\",
        `  -e OPENAI_API_BASE_URL=http://host.docker.internal:${port}/v1 \\`,
        "  -e OPENAI_API_KEY=YOUR_KEY \\",
        "  -v open-webui:/app/backend/data \\",
        "  ghcr.io/open-webui/open-webui:main",
      ),
    ],
  };
}

function code(language, ...lines) {
  return { language, code: lines.filter((line) => typeof line === "string").join("\n") };
}
