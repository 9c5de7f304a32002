// The address of the browser is the state of the page: back, forward and reload work, and every view has a link.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const path = signal(location.pathname);
export const query = signal(location.search);

const follow = (): void => {
  path.value = location.pathname;
  query.value = location.search;
};
addEventListener("popstate", follow);

export const go = (to: string, replace = false): void => {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  follow();
};

// The links below are the only ones of the page, and none comes from data as it is.
export const linkTo = {
  fleet: (filter = ""): string => "/ui/" + (filter ? "?filter=" + encodeURIComponent(filter) : ""),
  node: (name: string): string => "/ui/nodes/" + encodeURIComponent(name),
};

export const filterIn = (search: string): string => new URLSearchParams(search).get("filter") ?? "";

interface LinkProps { to: string; class?: string; title?: string; current?: boolean; label?: string; children: ComponentChildren }

export const Link = (p: LinkProps) => (
  <a
    href={p.to} class={p.class} title={p.title} aria-label={p.label} aria-current={p.current ? "page" : undefined}
    onClick={(e) => {
      if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
      e.preventDefault();
      go(p.to);
    }}
  >
    {p.children}
  </a>
);
