// A conversation as the server takes it (/v1/chat/completions), and what its stream says.

import { readTools } from "./tools.js";

/**
 * The body of a request.
 * @param {object[]} path  messages from the first on; a last one of the assistant is continued
 * @param {object} settings
 * @param {string} model
 */
export function bodyOf(path, settings, model) {
  const messages = [];
  if (settings.system.trim()) messages.push({ role: "system", content: settings.system });
  for (const one of path) {
    const message = sent(one);
    if (message) messages.push(message);
  }
  const tools = settings.toolsOn ? readTools(settings.tools) : [];
  return {
    model: model || "default",
    messages,
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    ...(tools.length ? { tools } : {}),
    ...(settings.effort ? { reasoning_effort: settings.effort } : {}),
    ...settings.numbers,
  };
}

function sent(one) {
  if (one.role === "user") return { role: "user", content: one.content };
  if (one.role === "tool") return { role: "tool", tool_call_id: one.call, content: one.content };
  const calls = one.calls
    .filter(whole)
    .map((call) =>
      call.type === "custom"
        ? { id: call.id, type: "custom", custom: { name: call.name, input: call.arguments } }
        : { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments || "{}" } },
    );
  if (!one.content.trim() && !calls.length) return null; // nothing came of it
  return {
    role: "assistant",
    content: one.content,
    ...(one.reasoning ? { reasoning_content: one.reasoning } : {}),
    ...(calls.length ? { tool_calls: calls } : {}),
  };
}

/** Whether a call was written to its end. */
export function whole(call) {
  if (call.type === "custom") return true;
  try {
    JSON.parse(call.arguments || "{}");
    return true;
  } catch {
    return false;
  }
}

/**
 * Put what a chunk of the stream says into the message.
 * @returns {{progress?: object, finish?: string}} what is not part of the message
 */
export function take(chunk, message, now) {
  const told = {};
  if (chunk.usage) {
    const { prompt_tokens: prompt, completion_tokens: answer } = chunk.usage;
    message.usage = {
      prompt,
      answer,
      cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
      thought: chunk.usage.completion_tokens_details?.reasoning_tokens ?? 0,
    };
  }
  if (chunk.timings?.predicted_per_second) message.speed = chunk.timings.predicted_per_second;
  if (chunk.prompt_progress) told.progress = chunk.prompt_progress;
  const choice = chunk.choices?.[0];
  if (!choice) return told;
  const { delta = {} } = choice;
  if (delta.reasoning_content) {
    message.began ??= now;
    message.reasoning += delta.reasoning_content;
  }
  if ((delta.content || delta.tool_calls) && message.reasoning && message.thought === null)
    message.thought = now - message.began;
  if (delta.content) message.content += delta.content;
  for (const part of delta.tool_calls ?? []) {
    const call = (message.calls[part.index] ??= { id: "", type: "function", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    if (part.type) call.type = part.type;
    const body = part.function ?? part.custom ?? {};
    if (body.name) call.name = body.name;
    call.arguments += body.arguments ?? body.input ?? "";
  }
  if (choice.finish_reason) told.finish = choice.finish_reason;
  if (choice.unfinished) message.unfinished = choice.unfinished;
  return told;
}
