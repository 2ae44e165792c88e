export default function nameless(): number {
  return 1;
}
