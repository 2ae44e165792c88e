/** Dark, light, or as the system is; kept in this browser. */
import { useLayoutEffect, useState } from 'preact/hooks';

export type Theme = 'auto' | 'light' | 'dark';

const KEY = 'reach-theme';

export function nextTheme(theme: Theme): Theme {
  return theme === 'auto' ? 'dark' : theme === 'dark' ? 'light' : 'auto';
}

export function useTheme(): readonly [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>(kept);
  useLayoutEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // A browser that keeps nothing: it is asked for again next time.
    }
  }, [theme]);
  return [theme, setTheme];
}

function kept(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'dark' || value === 'light' ? value : 'auto';
  } catch {
    return 'auto';
  }
}
