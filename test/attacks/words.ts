/** By these words `make attacks` finds, in what the tests said, the check that nothing reached a provider. */
export const REACHED_NOTHING = 'nothing has reached the provider';
