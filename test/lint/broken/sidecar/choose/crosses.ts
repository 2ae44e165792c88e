import { borrowed } from '../../control-plane/crosses.ts';

export const back = borrowed;
