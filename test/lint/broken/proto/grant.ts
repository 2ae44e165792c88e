export interface Grant {
  readonly who: string;
}
