// Sounds of the page "How it works": a voice or noise from any direction, and the steps of VESSL.

import { address } from "./api.js";

const FADE = 0.03; // seconds in which one direction or step replaces another

async function load(file) {
  const response = await fetch(address(`explainer/${file}`));
  if (!response.ok) throw new Error("A sound could not be loaded.");
  return response.arrayBuffer();
}

function fade(context, gain, to) {
  gain.gain.cancelScheduledValues(context.currentTime);
  gain.gain.setValueAtTime(gain.gain.value, context.currentTime);
  gain.gain.linearRampToValueAtTime(to, context.currentTime + FADE);
}

// A repeated sound that is filtered with the responses of the head at one direction.
export class DirectionSound {
  constructor({ files, rate, taps }) { Object.assign(this, { files, rate, taps, kind: "voice", at: 0, playing: false }); }

  async prepare() {
    this.context ??= new AudioContext({ sampleRate: this.rate });
    this.loading ??= Promise.all(this.files.map(load)).then(async ([responses, voice]) => {
      this.responses = new Float32Array(responses);
      this.sounds = { voice: await this.context.decodeAudioData(voice), noise: this.noise() };
    });
    await this.loading;
    await this.context.resume();
  }

  // Three short bursts of noise with pauses: all frequencies, and clear onsets.
  noise() {
    const n = this.rate, buffer = new AudioBuffer({ length: 2 * n, numberOfChannels: 1, sampleRate: this.rate }), samples = buffer.getChannelData(0);
    for (const start of [0, 0.35, 0.7]) for (let i = 0; i < 0.2 * n; i += 1) samples[Math.round(start * n) + i] = 0.2 * (2 * Math.random() - 1) * Math.sin((Math.PI * i) / (0.2 * n));
    return buffer;
  }

  // The response of a direction, left and right.
  response(at) {
    const buffer = new AudioBuffer({ length: this.taps, numberOfChannels: 2, sampleRate: this.rate });
    for (const ear of [0, 1]) buffer.copyToChannel(this.responses.subarray((2 * at + ear) * this.taps, (2 * at + ear + 1) * this.taps), ear);
    return buffer;
  }

  async play(at) {
    this.playing = true;
    this.at = at;
    await this.prepare();
    if (!this.playing) return;
    this.source?.stop();
    const mono = this.sounds[this.kind];
    const one = new AudioBuffer({ length: mono.length, numberOfChannels: 1, sampleRate: this.rate });
    one.copyToChannel(mono.getChannelData(0), 0);
    this.source = new AudioBufferSourceNode(this.context, { buffer: one, loop: true });
    this.path = null;
    this.source.start();
    this.move(this.at);
  }

  // Change the direction while the sound plays.
  move(at) {
    this.at = at;
    if (!this.playing || !this.source) return;
    const filter = new ConvolverNode(this.context, { buffer: this.response(at), disableNormalization: true });
    const gain = new GainNode(this.context, { gain: 0 });
    this.source.connect(filter).connect(gain).connect(this.context.destination);
    fade(this.context, gain, 1);
    const old = this.path;
    if (old) { fade(this.context, old.gain, 0); setTimeout(() => { old.filter.disconnect(); old.gain.disconnect(); }, 1000 * FADE + 100); }
    this.path = { filter, gain };
  }

  stop() {
    this.playing = false;
    this.source?.stop();
    this.path?.gain.disconnect();
    this.source = this.path = null;
  }

  close() { this.stop(); this.context?.close(); this.context = null; }
}

// The sounds of the steps of VESSL: switching to another step continues at the same time.
export class StepSound {
  constructor(rate) { Object.assign(this, { rate, buffers: new Map(), file: null }); }

  async play(file) {
    this.file = file;
    this.context ??= new AudioContext({ sampleRate: this.rate });
    await this.context.resume();
    if (!this.buffers.has(file)) this.buffers.set(file, load(file).then((data) => this.context.decodeAudioData(data)));
    const buffer = await this.buffers.get(file);
    if (this.file !== file) return; // another one was chosen meanwhile
    this.began ??= this.context.currentTime;
    const offset = (this.context.currentTime - this.began) % buffer.duration;
    const source = new AudioBufferSourceNode(this.context, { buffer, loop: true }), gain = new GainNode(this.context, { gain: 0 });
    source.connect(gain).connect(this.context.destination);
    source.start(0, offset);
    fade(this.context, gain, 1);
    this.fadeOut();
    this.running = { source, gain };
  }

  fadeOut() {
    const old = this.running;
    if (!old) return;
    fade(this.context, old.gain, 0);
    old.source.stop(this.context.currentTime + FADE);
    this.running = null;
  }

  stop() {
    this.file = this.began = null;
    this.fadeOut();
  }

  close() { this.stop(); this.context?.close(); this.context = null; }
}
