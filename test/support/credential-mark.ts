/**
 * What every credential of the tests contains, and nothing else: after a run it is looked for in all that the run has written
 * (test/run/find-credentials.ts). A token that is made up in a test and that a product would keep secret should contain it.
 */
export const MARK = 'q7Vx2mKz9';
