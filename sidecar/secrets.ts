/** Reads secrets by reference. What it returns is never logged; what it throws names the place, never the value. */
import { readFileSync } from 'node:fs';
import type { SecretRef } from '../proto/language/types.ts';
import type { SecretSource } from './config.ts';

export function readSecret(source: SecretSource | SecretRef): string {
  if ('literal' in source) return source.literal;
  if ('env' in source) {
    const value = process.env[source.env];
    if (value === undefined || value === '') throw new Error(`the environment variable ${source.env}, which holds a secret, is not set`);
    return value;
  }
  try {
    return readFileSync(source.file, 'utf8').trim();
  } catch (error) {
    throw new Error(`the secret file ${source.file} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`);
  }
}
