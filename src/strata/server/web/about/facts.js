// What /props says, in words.

const KINDS = { f32: "32-bit floats", f16: "16-bit floats", bf16: "16-bit floats", q8_0: "8-bit blocks" };

/**
 * @param {object|null} props  of /props
 * @param {object} health
 * @returns {{lead: string, facts: [string, string, string?][], memory: string[]}}
 */
export function about(props, health) {
  if (!props)
    return {
      lead:
        health.ready || health.state === "unknown"
          ? "Asking the server."
          : "The server says more as soon as the model is there.",
      facts: [],
      memory: [],
    };
  if (props.n_ctx === undefined) {
    const asleep = props.state === "asleep";
    const lead = asleep ? "It is not in memory; the first message to it loads it." : "The model is being loaded.";
    return { lead, facts: file(props), memory: [] };
  }
  const scripted = props.engine === "script";
  const facts = [
    ...file(props),
    [
      "Context",
      `${number(props.n_ctx)} tokens`,
      props.rope_scale > 1 ? `stretched ${props.rope_scale} times` : undefined,
    ],
    ["At a time", count(props.total_slots, "conversation"), `${number(props.queue)} more may wait`],
  ];
  if (!scripted) {
    facts.push(["Keys and values", KINDS[props.kv] ?? props.kv]);
    facts.push([
      "Guessing ahead",
      props.drafts?.most ? `up to ${count(props.drafts.most, "token")}` : "off",
      props.drafts?.most ? (props.drafts.head ? "by the model's own head and by look-up" : "by look-up") : undefined,
    ]);
    facts.push(["Vocabulary", `${number(props.n_vocab)} tokens`]);
    facts.push(["Fingerprint", String(props.fingerprint).slice(0, 12)]);
  }
  if (props.build_info) facts.push(["Served by", props.build_info]);
  const memory = [
    ...(Array.isArray(props.plan) ? props.plan : []),
    props.placed && placed(props.placed),
    props.why && sentence(props.why),
    props.unused_tensors?.length &&
      `${count(props.unused_tensors.length, "tensor")} of the file ${props.unused_tensors.length === 1 ? "is" : "are"} not used.`,
  ].filter(Boolean);
  const lead = scripted
    ? "A scripted engine: it answers from a file, exactly and whatever is asked, for those who write clients."
    : `It runs ${where(props.device)}. The same request gives the same answer, whatever was done to be fast.`;
  return { lead, facts, memory };
}

function where(device) {
  if (!device || device === "cpu") return "on the processor of the server";
  const place = /^cuda:(\d+)$/.exec(device)?.[1];
  return place === undefined ? `on ${device}` : `on the server's GPU ${place}`;
}

function file({ model_path: path }) {
  if (!path) return [];
  return [["File", path.split("/").at(-1), undefined]];
}

/** "cpu: 14.7 MB of weights" */
function placed(text) {
  const found = /^(.+?): (.+)$/.exec(text);
  return found
    ? sentence(`${found[1] === "cpu" ? "the processor's memory" : found[1]} holds ${found[2]}`)
    : sentence(text);
}

function sentence(text) {
  const words = text.trim();
  return `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;
}

function number(value) {
  return Number(value).toLocaleString("en");
}

function count(value, word) {
  return `${number(value)} ${word}${value === 1 ? "" : "s"}`;
}
