// Package main builds the page in ui/dist from ui/src and ui/vendor. `make ui` runs this program in the project's
// directory. The same sources always give the same bytes, and a test compares them with ui/dist.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if err := write("ui"); err != nil {
		fmt.Fprintln(os.Stderr, "uibuild:", err)
		os.Exit(1)
	}
}

// vendored are the files that the sources may import by a name.
var vendored = map[string]string{
	"preact":               "preact/dist/preact.mjs",
	"preact/hooks":         "preact/hooks/dist/hooks.mjs",
	"preact/jsx-runtime":   "preact/jsx-runtime/dist/jsxRuntime.mjs",
	"@preact/signals":      "signals/signals.mjs",
	"@preact/signals-core": "signals-core/signals-core.mjs",
}

// copied are the sources that are in the page without a change.
var copied = []string{"index.html"}

// licences are the licences of the foreign code in the page.
var licences = []string{"preact", "signals", "signals-core"}

// The function `build` returns the files of the page. The directory contains src and vendor.
func build(dir string) (map[string][]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	alias := map[string]string{}
	for name, file := range vendored {
		alias[name] = filepath.Join(dir, "vendor", file)
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: dir,
		EntryPoints:   []string{"src/app.tsx", "src/worker.ts", "src/app.css"},
		Outdir:        filepath.Join(dir, "dist"),
		Alias:         alias,
		Bundle:        true, MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
		Format: api.FormatIIFE, Target: api.ES2022, Charset: api.CharsetUTF8,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", TsconfigRaw: "{}",
		LegalComments: api.LegalCommentsNone,
		Banner:        map[string]string{"js": "/* licences of foreign code: licences.txt */"},
	})
	var wrong []error
	for _, m := range append(result.Errors, result.Warnings...) {
		at := ""
		if m.Location != nil {
			at = fmt.Sprintf("%s:%d: ", m.Location.File, m.Location.Line)
		}
		wrong = append(wrong, fmt.Errorf("%s%s", at, m.Text))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	out := map[string][]byte{}
	for _, f := range result.OutputFiles {
		out[filepath.Base(f.Path)] = f.Contents
	}
	for _, name := range copied {
		if out[name], err = os.ReadFile(filepath.Join(dir, "src", name)); err != nil {
			return nil, err
		}
	}
	out["licences.txt"], err = allLicences(dir)
	return out, err
}

func allLicences(dir string) ([]byte, error) {
	var text strings.Builder
	for _, name := range licences {
		one, err := os.ReadFile(filepath.Join(dir, "vendor", name, "LICENSE"))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s\n\n%s\n\n", name, strings.TrimSpace(string(one)))
	}
	return []byte(text.String()), nil
}

// write replaces the files in dist.
func write(dir string) error {
	files, err := build(dir)
	if err != nil {
		return err
	}
	dist := filepath.Join(dir, "dist")
	old, err := filepath.Glob(filepath.Join(dist, "*"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if files[filepath.Base(file)] == nil {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	names := make([]string, 0, len(files))
	for name, content := range files {
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dist, name), content, 0o644); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("%s/%s %d bytes\n", dist, name, len(files[name]))
	}
	return nil
}
