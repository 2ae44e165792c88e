/**
 * Reads a secret from where it is kept: an environment variable, a file, or (on a laptop) the settings themselves. What it
 * returns is never logged; what it throws names the place, never the value.
 */
import { readFileSync } from 'node:fs';

export type SecretSource = { readonly env: string } | { readonly file: string } | { readonly literal: string };

export function readSecret(source: SecretSource): string {
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
