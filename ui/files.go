// Package ui contains the web page of Tutti. The sources are in src. `make ui` builds the files in dist from them, and
// the program contains the files in dist.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the files of the page.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name of the directory is valid
	}
	return files
}
