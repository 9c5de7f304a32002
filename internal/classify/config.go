package classify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// ConfigFile is the name of the file that names the script, in a server's directory.
const ConfigFile = "enc.yaml"

// These are the defaults and bounds of the configuration.
const (
	defaultTimeout  = 10 * time.Second
	maxTimeout      = 5 * time.Minute
	defaultEvery    = 5 * time.Minute
	minEvery        = time.Second
	maxEvery        = 24 * time.Hour
	defaultParallel = 4
	maxParallel     = 64
	maxConfig       = 64 << 10
)

// Config says how the script runs.
type Config struct {
	Command  string        // absolute path; the only argument is the name of the node
	Timeout  time.Duration // of one call
	Every    time.Duration // how old an answer may become before the script is asked again
	Parallel int           // how many calls run at one time
}

// ReadConfig reads the configuration of a server. If there is no file, ReadConfig returns nil: the server has no ENC.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxConfig:
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s has %d bytes, at most %d", path, info.Size(), maxConfig)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(path, raw)
}

func parseConfig(path string, raw []byte) (*Config, error) {
	at := func(n *yaml.Node, text string, args ...any) error {
		return tutti.Errorf(tutti.CodeInvalid, "%s:%d: %s", path, max(n.Line, 1), fmt.Sprintf(text, args...))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: this is no YAML: %s; indent with spaces, and close each quote", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, at(&doc, "write `command: /path/of/the/script`, or remove the file")
	}
	c := &Config{Timeout: defaultTimeout, Every: defaultEvery, Parallel: defaultParallel}
	seen := map[string]bool{}
	top := doc.Content[0]
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if seen[key.Value] {
			return nil, at(key, "%s occurs twice: remove one", key.Value)
		}
		seen[key.Value] = true
		var err error
		switch key.Value {
		case "command":
			c.Command = value.Value
			if problem := unfit(c.Command); problem != "" {
				err = at(value, "command %q %s", c.Command, problem)
			}
		case "timeout":
			c.Timeout, err = duration(value, time.Second, maxTimeout)
		case "every":
			c.Every, err = duration(value, minEvery, maxEvery)
		case "parallel":
			if value.Decode(&c.Parallel) != nil || c.Parallel < 1 || c.Parallel > maxParallel {
				err = fmt.Errorf("must be a number from 1 to %d", maxParallel)
			}
		default:
			err = at(key, "unknown key %q: the keys are command, timeout, every and parallel", key.Value)
		}
		if err != nil && tutti.CodeOf(err) != tutti.CodeInvalid {
			err = at(value, "%s %q %s", key.Value, value.Value, err.Error())
		}
		if err != nil {
			return nil, err
		}
	}
	if c.Command == "" {
		return nil, at(top, "the command is missing: write `command: /path/of/the/script`")
	}
	return c, nil
}

func duration(n *yaml.Node, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(n.Value)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("must be a time from %s to %s, like 30s", least, most)
	}
	return d, nil
}

// The function `trusted` reports whether a file belongs to root or to the server's user.
func trusted(info os.FileInfo) bool {
	st, is := info.Sys().(*syscall.Stat_t)
	return is && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// The function `unfit` says why a script cannot or must not run. Who may change the script acts as the server's user, so
// only its owner may have this right.
func unfit(command string) string {
	if !filepath.IsAbs(command) {
		return "must be an absolute path"
	}
	info, err := os.Stat(command)
	switch {
	case err != nil:
		return "cannot be read: " + err.Error()
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "is not a file that can be executed: chmod +x"
	case !trusted(info):
		return "belongs to another user, who could change what the server runs: chown root"
	case info.Mode()&0o022 != 0:
		return fmt.Sprintf("has mode %04o, so others could change what the server runs: chmod go-w", info.Mode().Perm())
	}
	return ""
}
