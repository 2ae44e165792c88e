/** Waits for the signals by which programs are asked to stop. */
export interface Asked {
  readonly promise: Promise<void>;
  /** The signals have their usual effect again. */
  forget(): void;
}

export function untilSignal(): Asked {
  let told = (): void => {};
  const promise = new Promise<void>((done) => {
    told = done;
  });
  process.once('SIGINT', told);
  process.once('SIGTERM', told);
  return {
    promise,
    forget: () => {
      process.off('SIGINT', told);
      process.off('SIGTERM', told);
    },
  };
}
