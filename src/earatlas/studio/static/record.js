// Two unprocessed channels of an input device: echo cancellation and noise suppression of browsers
// would destroy the cues.

import { wavFile } from "./player.js";

// `device` is the id of an input; by default the browser chooses one.
export async function microphone(device = "") {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error("This browser does not support recording. Drop a file instead.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { ...(device ? { deviceId: { exact: device } } : {}), channelCount: { ideal: 2 }, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
  } catch (error) {
    const messages = { NotAllowedError: "Permission to use the microphones was denied. Allow it and try again.", NotFoundError: "No microphone was found. Connect an input with two channels.", OverconstrainedError: "The chosen input is no longer connected. Choose another one." };
    throw new Error(messages[error.name] ?? `The microphones cannot be used (${error.message}).`);
  }
  const channels = stream.getAudioTracks()[0].getSettings().channelCount;
  if (channels !== undefined && channels < 2) {
    stream.getTracks().forEach((track) => track.stop());
    throw new Error("This input has only one channel, and a mono sound carries no interaural cues. Choose an input with two microphones, one in each ear.");
  }
  return stream;
}

// Capture the input: `onBlock` gets blocks of samples (left, right) until `close` is called.
export async function capture(onBlock, rate = undefined, device = "") {
  const stream = await microphone(device);
  const [context, source] = openContext(stream, rate);
  await context.audioWorklet.addModule("static/capture.js");
  const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, channelCount: 2, channelCountMode: "explicit", channelInterpretation: "discrete" });
  node.port.onmessage = ({ data }) => onBlock(data.left, data.right);
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

// Some browsers only support the rate of the input device.
function openContext(stream, rate) {
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

// Record until `stop` is called; `onLevel` gets the duration in seconds and the levels in dB.
export async function record(onLevel) {
  const blocks = [[], []];
  let count = 0;
  const input = await capture((left, right) => {
    blocks[0].push(left);
    blocks[1].push(right);
    count += left.length;
    onLevel(count / input.rate, [decibels(left), decibels(right)]);
  });
  const concatenate = (parts) => {
    const whole = new Float32Array(count);
    parts.reduce((at, part) => { whole.set(part, at); return at + part.length; }, 0);
    return whole;
  };
  return {
    async stop() {
      await input.close();
      return wavFile(blocks.map(concatenate), input.rate);
    },
  };
}
