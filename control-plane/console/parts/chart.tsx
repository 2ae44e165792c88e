/** A few lines over time, with the scale they need: what it shows stands beside it in words, and under the pointer. */
import { useState } from 'preact/hooks';
import { highest, niceTop, pieces } from '../spark.ts';

interface ChartLine {
  readonly name: string;
  readonly tone: 'plain' | 'bad';
  readonly values: readonly (number | null)[];
}

interface ChartProps {
  readonly label: string;
  readonly times: readonly string[];
  readonly lines: readonly ChartLine[];
  readonly words: (value: number) => string;
}

const WIDTH = 480;
const HEIGHT = 110;

export function Chart({ label, times, lines, words }: ChartProps) {
  const [at, setAt] = useState<number | null>(null);
  const top = niceTop(Math.max(...lines.map(({ values }) => highest(values))));
  const shown = at ?? times.length - 1;
  const said = lines.map(({ name, values }) => `${name} ${values[shown] == null ? '–' : words(values[shown])}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <strong>{label}</strong> <span class="muted small">{times.length === 0 ? '' : `${times[shown] ?? ''}: ${said}`}</span>
      </figcaption>
      <svg
        viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}; ${said}; the scale goes to ${words(top)}`}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const share = (event.clientX - box.left) / box.width;
          setAt(Math.min(times.length - 1, Math.max(0, Math.round(share * (times.length - 1)))));
        }}
        onPointerLeave={() => setAt(null)}
      >
        {[0, 0.5, 1].map((share) => (
          <line key={share} x1="0" x2={WIDTH} y1={HEIGHT * share} y2={HEIGHT * share} class="grid" />
        ))}
        {at !== null && times.length > 1 && (
          <line x1={(WIDTH * at) / (times.length - 1)} x2={(WIDTH * at) / (times.length - 1)} y1="0" y2={HEIGHT} class="cursor" />
        )}
        {lines.map(({ name, tone, values }) =>
          pieces(values, WIDTH, HEIGHT, top).map((points) =>
            points.includes(' ') ? (
              <polyline key={`${name} ${points}`} points={points} class={`line ${tone}`} />
            ) : (
              <line
                key={`${name} ${points}`}
                x1={Math.max(0, Number(points.split(',')[0]) - 2)}
                x2={Math.max(2, Number(points.split(',')[0]))}
                y1={points.split(',')[1]}
                y2={points.split(',')[1]}
                class={`line ${tone}`}
              />
            ),
          ),
        )}
      </svg>
      <div class="chart-scale muted small" aria-hidden="true">
        <span>{times[0] ?? ''}</span>
        <span>top {words(top)}</span>
        <span>{times.at(-1) ?? ''}</span>
      </div>
    </figure>
  );
}
