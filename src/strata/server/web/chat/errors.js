// What went wrong, and what to do about it.

/**
 * @param {{status: number, code: string, message: string}} error
 * @returns {{title: string, advice: string, action: "retry"|"key"|"none"}}
 */
export function explain({ status, code }) {
  if (code === "context_length_exceeded") {
    return {
      title: "The conversation no longer fits into the model's context",
      advice: "Begin a new chat, or edit an earlier question: what stood below it is then left out.",
      action: "none",
    };
  }
  if (code === "model_not_found")
    return {
      title: "The server has no model of this name any more",
      advice: "Choose another one below.",
      action: "retry",
    };
  if (code === "engine_died")
    return {
      title: "The engine ended in the middle of this answer",
      advice: "What had come is kept, and the engine is being started again. Other answers are not affected.",
      action: "retry",
    };
  if (code === "engine_hung")
    return {
      title: "The engine gave no sign of life and was ended",
      advice: "It is being started again.",
      action: "retry",
    };
  if (code === "out_of_memory")
    return {
      title: "The server ran out of memory",
      advice: "A shorter conversation needs less; so do fewer conversations at a time.",
      action: "retry",
    };
  if (code === "shutdown")
    return {
      title: "The server ended",
      advice: "Try again when it is back; this page notices by itself.",
      action: "retry",
    };
  if (code === "page")
    return {
      title: "This page made a mistake",
      advice: "Reloading the page may help; the browser's console has the details.",
      action: "retry",
    };
  switch (status) {
    case 0:
      return { title: "The connection to the server broke", advice: "What had come is kept.", action: "retry" };
    case 400:
      return {
        title: "The server refused this request",
        advice: "It says why below; the settings or tools may need a change.",
        action: "retry",
      };
    case 401:
      return {
        title: "A key is needed",
        advice: "The server was started with keys, and this page has none that it accepts.",
        action: "key",
      };
    case 403:
      return {
        title: "This page may not use the server",
        advice: "Open it under an address that the server knows as its own.",
        action: "none",
      };
    case 404:
      return {
        title: "The server has no such route",
        advice: "Something between this page and the server may change addresses.",
        action: "none",
      };
    case 413:
      return {
        title: "The conversation is larger than the server takes",
        advice: "Begin a new chat, or start the server with a larger --body-limit.",
        action: "none",
      };
    case 429:
      return {
        title: "The server's queue stayed full",
        advice: "Others are being answered. Try again in a while, or start the server with a longer --queue.",
        action: "retry",
      };
    case 503:
      return {
        title: "The server cannot answer now",
        advice: "It may be loading; try again when it is ready.",
        action: "retry",
      };
    case 504:
      return { title: "The engine took too long", advice: "It is being started again.", action: "retry" };
    default:
      return {
        title: "The server met a fault in this request",
        advice: "Its log says more. Other requests are not affected.",
        action: "retry",
      };
  }
}

/** Why a request is held back, in the words of one line. */
export function holding({ status, code }) {
  if (status === 429) return "The server's queue is full. Waiting for a place";
  if (code === "unreachable") return "The server does not answer. The question is sent when it is back";
  if (code === "loading") return "The model is being loaded. The question is sent when it is there";
  return "The server cannot answer yet. The question is sent when it can";
}
