"use strict";

/* A camera, where the browser lets a page have one. A press on the button opens it; whatever ends it stops its tracks. */

const REFUSALS = {
  NotAllowedError: "This page may not use the camera: you or the browser's settings say no.",
  NotFoundError: "The browser finds no camera.",
};

/**
 * @param {HTMLElement} panel with a video and buttons, "take" and "cancel"
 * @param {HTMLButtonElement} button opens the camera, or cancels it
 * @param {(video: HTMLVideoElement) => void} taken called while the image is on the video
 * @param {(text: string) => void} say why there is none
 * @returns {() => void} closes the camera
 */
function cameraOf(panel, button, taken, say) {
  const video = panel.querySelector("video");
  const [take, cancel] = panel.querySelectorAll("button");
  /** @type {Promise<MediaStream> | null} */
  let stream = null; // of the open camera; the reader may still be asked for it

  function close() {
    stream?.then((given) => given.getTracks().forEach((track) => track.stop())).catch(() => {});
    stream = video.srcObject = null;
    if (panel.contains(/** @type {ShadowRoot} */ (panel.getRootNode()).activeElement)) {
      button.focus();
    }
    panel.hidden = take.disabled = true;
    button.setAttribute("aria-expanded", "false");
  }

  async function open() {
    const own = navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    stream = own;
    say("");
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    try {
      const given = await own;
      if (own === stream) {
        video.srcObject = given;
        await video.play();
        take.disabled = false;
        take.focus();
      }
    } catch (error) {
      if (own === stream) {
        close();
        say(REFUSALS[error.name] ?? `The camera could not be started: ${error.message}.`);
      }
    }
  }

  button.parentElement.hidden = !navigator.mediaDevices;
  button.addEventListener("click", () => (stream ? close() : open()));
  take.addEventListener("click", () => taken(video));
  cancel.addEventListener("click", close);
  for (const part of [button, panel]) {
    part.addEventListener("keydown", (event) => event.key === "Escape" && close());
  }
  video.addEventListener("pause", close); // its stream has ended, or the figure has left the page
  document.addEventListener("visibilitychange", () => document.hidden && close());
  return close;
}
