package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// installModule writes the module of this release into a directory for modules.
// installModule replaces a module `tutti` of another release. installModule returns
// CodeConflict if something else has the module's name.
func installModule(modules string) (cli.ModuleInstalled, error) {
	dir, err := filepath.Abs(filepath.Join(modules, "tutti"))
	if err != nil {
		return cli.ModuleInstalled{}, err
	}
	out := cli.ModuleInstalled{Module: dir, Version: Version}
	if out.Digest, err = puppetmodule.Digest(); err != nil {
		return out, err
	}
	// a killed install may have left the directories with the endings .new and .old
	for _, path := range []string{dir, dir + ".new", dir + ".old"} {
		if err := mayReplace(path); err != nil {
			return out, err
		}
	}
	return out, tutti.Wrap("", copyModule(dir), "install the module")
}

// mayReplace returns an error if a path has files that do not belong to a module `tutti`. Without
// this check, installing would delete other people's files.
func mayReplace(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return tutti.Errorf(tutti.CodeConflict, "%s exists and is not a directory: move it away, or use another directory", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	var metadata struct{ Name string }
	raw, err := os.ReadFile(filepath.Join(path, "metadata.json"))
	if err == nil {
		err = json.Unmarshal(raw, &metadata)
	}
	if err != nil || metadata.Name != "tutti-tutti" {
		return tutti.Errorf(tutti.CodeConflict, "%s exists and is not the module of Tutti (its metadata.json does not say tutti-tutti): "+
			"move it away, or use another directory", path)
	}
	var others []string
	for _, e := range entries {
		if _, err := fs.Stat(puppetmodule.FS(), e.Name()); err != nil {
			others = append(others, e.Name())
		}
	}
	if len(others) > 0 {
		return tutti.Errorf(tutti.CodeConflict, "%s has files that do not belong to the module: %s; move them away, or use another directory", path, strings.Join(others, ", "))
	}
	return nil
}
