// What to put into clients so that they use this server. The key is never written out: a page may be shown to others.

/**
 * @param {{base: string, model: string, context: number|null, keyed: boolean}} server  `base` without a last slash
 * @returns {{name: string, title: string, parts: {words?: string, code?: string, language?: string}[]}[]}
 */
export function clients({ base, model, context, keyed }) {
  const key = keyed ? "YOUR_KEY" : "none";
  const openai = `${base}/v1`;
  const question = "Count from 1 to 5.";
  const { port } = new URL(base);
  return [
    {
      name: "curl", title: "curl",
      parts: [{
        language: "bash",
        code: `curl -s ${base}/v1/chat/completions \\\n${keyed ? `  -H "Authorization: Bearer ${key}" \\\n` : ""}  -d '{"messages": [{"role": "user", "content": "${question}"}]}'`,
      }],
    },
    {
      name: "openai", title: "Python, openai",
      parts: [{
        language: "python",
        code: `from openai import OpenAI\n\nclient = OpenAI(base_url="${openai}", api_key="${key}")\nquestion = {"role": "user", "content": "${question}"}\nreply = client.chat.completions.create(model="${model}", messages=[question])\nprint(reply.choices[0].message.content)`,
      }],
    },
    {
      name: "anthropic", title: "Python, anthropic",
      parts: [{
        language: "python",
        code: `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${base}", api_key="${key}")\nquestion = {"role": "user", "content": "${question}"}\nreply = client.messages.create(model="${model}", max_tokens=1000, messages=[question])\nprint(reply.content[0].text)`,
      }],
    },
    {
      name: "claude-code", title: "Claude Code",
      parts: [
        { words: "In the shell that starts it, or under env in its settings file. Whatever it calls the model is answered by this one." },
        { language: "bash", code: `export ANTHROPIC_BASE_URL=${base}\nexport ANTHROPIC_AUTH_TOKEN=${key}\nexport ANTHROPIC_MODEL=${model}\nclaude` },
      ],
    },
    {
      name: "codex", title: "Codex",
      parts: [
        { words: keyed ? "In ~/.codex/config.toml; the key is read from the variable that env_key names." : "In ~/.codex/config.toml." },
        {
          language: "toml",
          code: `model = "${model}"\nmodel_provider = "strata"\n\n[model_providers.strata]\nname = "Strata"\nbase_url = "${openai}"\nwire_api = "responses"${keyed ? '\nenv_key = "STRATA_KEY"' : ""}`,
        },
        ...(keyed ? [{ language: "bash", code: `export STRATA_KEY=${key}\ncodex` }] : []),
      ],
    },
    {
      name: "cline", title: "Cline",
      parts: [
        { words: "In its settings, with “OpenAI Compatible” as the API provider:" },
        { language: "text", code: `Base URL        ${openai}\nAPI Key         ${key}\nModel ID        ${model}${context ? `\nContext Window  ${context}` : ""}` },
      ],
    },
    {
      name: "open-webui", title: "Open WebUI",
      parts: [
        { words: "Without a container, as environment:" },
        { language: "bash", code: `OPENAI_API_BASE_URL=${openai}\nOPENAI_API_KEY=${key}` },
        { words: "In a container on this machine. The server then has to listen beyond this machine and to demand a key: strata serve --host 0.0.0.0 --api-key YOUR_KEY" },
        {
          language: "bash",
          code: `docker run -d --name open-webui -p 3000:8080 \\\n  --add-host=host.docker.internal:host-gateway \\\n  -e OPENAI_API_BASE_URL=http://host.docker.internal:${port || "80"}/v1 \\\n  -e OPENAI_API_KEY=YOUR_KEY \\\n  -v open-webui:/app/backend/data \\\n  ghcr.io/open-webui/open-webui:main`,
        },
      ],
    },
  ];
}
