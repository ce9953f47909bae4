// Audio worklet: posts two channels in blocks of about 40 ms.

const SIZE = 2048;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.begin();
  }

  begin() {
    this.left = new Float32Array(SIZE);
    this.right = new Float32Array(SIZE);
    this.filled = 0;
  }

  process([input]) {
    if (input.length) {
      this.left.set(input[0], this.filled);
      this.right.set(input[1] ?? input[0], this.filled);
      this.filled += input[0].length;
      if (this.filled >= SIZE) {
        this.port.postMessage({ left: this.left, right: this.right }, [this.left.buffer, this.right.buffer]);
        this.begin();
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
