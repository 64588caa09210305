"use strict";

/* The end of a worker's script: messages in, `answers` out, and news on the way. */

self.onmessage = async ({ data: { id, kind, ...question } }) => {
  try {
    const result = await answers[kind](question, (news) => self.postMessage({ id, news }));
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
