async function work(): Promise<number> {
  return await Promise.resolve(1);
}

export function forgets(): void {
  work();
}
