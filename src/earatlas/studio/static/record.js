// Two channels from an input device, as they are: what browsers do to voices would spoil the cues.

import { wavFile } from "./player.js";

export async function microphone() {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error("This browser lets no page record. Drop a file instead.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: { ideal: 2 }, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
  } catch (error) {
    const words = { NotAllowedError: "The browser was not allowed to use the microphones. Allow it, and try again.", NotFoundError: "No microphone was found. Connect one with two channels." };
    throw new Error(words[error.name] ?? `The microphones cannot be used (${error.message}).`);
  }
  const channels = stream.getAudioTracks()[0].getSettings().channelCount;
  if (channels !== undefined && channels < 2) {
    stream.getTracks().forEach((track) => track.stop());
    throw new Error("This input has one channel. A mono sound carries no cues of direction: choose an input with two microphones, one in each ear.");
  }
  return stream;
}

// Blocks of samples (left, right) of the input, as they come; `close` ends it.
export async function captured(told, rate = undefined) {
  const stream = await microphone();
  const [context, source] = listener(stream, rate);
  await context.audioWorklet.addModule("static/capture.js");
  const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, channelCount: 2, channelCountMode: "explicit", channelInterpretation: "discrete" });
  node.port.onmessage = ({ data }) => told(data.left, data.right);
  source.connect(node);
  return {
    rate: context.sampleRate,
    async close() {
      stream.getTracks().forEach((track) => track.stop());
      node.port.onmessage = null;
      if (context.state !== "closed") await context.close();
    },
  };
}

// Some browsers take the input at its own rate only.
function listener(stream, rate) {
  for (const options of rate ? [{ sampleRate: rate }, {}] : [{}]) {
    const context = new AudioContext(options);
    try {
      return [context, new MediaStreamAudioSourceNode(context, { mediaStream: stream })];
    } catch (error) {
      context.close();
      if (!options.sampleRate) throw error;
    }
  }
  return null;
}

const decibels = (block) => 10 * Math.log10(Math.max(block.reduce((sum, x) => sum + x * x, 0) / block.length, 1e-9));

export async function record(told) {
  const blocks = [[], []];
  let count = 0;
  const input = await captured((left, right) => {
    blocks[0].push(left);
    blocks[1].push(right);
    count += left.length;
    told(count / input.rate, [decibels(left), decibels(right)]);
  });
  const joined = (parts) => {
    const whole = new Float32Array(count);
    parts.reduce((at, part) => { whole.set(part, at); return at + part.length; }, 0);
    return whole;
  };
  return {
    async stop() {
      await input.close();
      return wavFile(blocks.map(joined), input.rate);
    },
  };
}
