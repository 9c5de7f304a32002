package outward

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// ConfigFile is the name of the file with the destinations, in a server's directory.
const ConfigFile = "reports.yaml"

// These are the kinds of destinations.
const (
	PuppetDB = "puppetdb"
	Foreman  = "foreman"
	HTTP     = "http"
)

// These are the formats of a destination of the kind HTTP.
const (
	formatYAML = "yaml"
	formatJSON = "json"
)

const (
	defaultTimeout  = time.Minute
	maxConfig       = 1 << 20
	maxDestinations = 16
)

// Destination is a system that gets reports.
type Destination struct {
	Name  string
	Kind  string
	URL   *url.URL
	Files Files
	// Format is the format of the kind HTTP.
	Format string
	// AgentRuns is true if the destination also gets runs of `puppet agent` and foreign runs.
	AgentRuns bool
	// Facts is true if a PuppetDB also gets the facts that the server holds.
	Facts   bool
	Timeout time.Duration // of one request
}

// Files are paths of files on the server's machine.
type Files struct{ Certificate, Key, CA, Token string }

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// ReadConfig reads the destinations of a server. If there is no file, ReadConfig returns no destinations.
func ReadConfig(dir string) ([]Destination, error) {
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
	return ParseConfig(path, raw)
}

// ParseConfig reads destinations. Each error says file and line.
func ParseConfig(path string, raw []byte) ([]Destination, error) {
	r := reader{path: path}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil || len(doc.Content) == 0 {
		return nil, r.syntax(err)
	}
	var more yaml.Node
	if d.Decode(&more) == nil {
		return nil, r.error(&more, "a second YAML document: write all destinations below one `destinations:`")
	}
	var out []Destination
	err := r.members(doc.Content[0], map[string]func(*yaml.Node) error{"destinations": func(n *yaml.Node) (err error) {
		out, err = r.destinations(n)
		return err
	}})
	if err == nil && len(out) == 0 {
		err = r.error(doc.Content[0], "no destination: add one below `destinations:`, or remove the file")
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

type reader struct{ path string }

var syntaxRE = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// The method `syntax` returns an error of the YAML library with file, line and a hint.
func (r reader) syntax(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return tutti.Errorf(tutti.CodeInvalid, "%s:1: the file is empty: write the destinations below `destinations:`, or remove the file", r.path)
	}
	line, text := "1", strings.TrimPrefix(err.Error(), "yaml: ")
	if found := syntaxRE.FindStringSubmatch(err.Error()); found != nil {
		line, text = found[1], found[2]
	}
	return tutti.Errorf(tutti.CodeInvalid, "%s:%s: this is no YAML: %s; indent with spaces, and close each bracket and quote", r.path, line, text)
}

func (r reader) error(n *yaml.Node, text string, args ...any) error {
	return tutti.Errorf(tutti.CodeInvalid, "%s:%d: %s", r.path, max(n.Line, 1), fmt.Sprintf(text, args...))
}

// The method `members` reads a mapping. A key that is unknown or there twice is an error.
func (r reader) members(n *yaml.Node, read map[string]func(*yaml.Node) error) error {
	var known []string
	for name := range read {
		known = append(known, name)
	}
	slices.Sort(known)
	seen := map[string]bool{}
	return r.each(n, func(key, value *yaml.Node) error {
		f := read[key.Value]
		switch {
		case f == nil:
			return r.error(key, "unknown key %q (keys: %s)", key.Value, strings.Join(known, ", "))
		case seen[key.Value]:
			return r.error(key, "%s is there twice", key.Value)
		}
		seen[key.Value] = true
		return f(value)
	})
}

func (r reader) each(n *yaml.Node, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return r.error(n, "expected a mapping (KEY: VALUE)")
	}
	for i := 0; i < len(n.Content); i += 2 {
		if err := f(n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r reader) destinations(n *yaml.Node) ([]Destination, error) {
	var out []Destination
	err := r.each(n, func(key, value *yaml.Node) error {
		switch {
		case !nameRE.MatchString(key.Value):
			return r.error(key, "destination %q: a name has lower-case letters, digits and -, at most 40", key.Value)
		case slices.ContainsFunc(out, func(d Destination) bool { return d.Name == key.Value }):
			return r.error(key, "destination %q is there twice", key.Value)
		case len(out) == maxDestinations:
			return r.error(key, "more than %d destinations", maxDestinations)
		}
		d, err := r.destination(key, value)
		out = append(out, d)
		return err
	})
	return out, err
}

func (r reader) destination(key, n *yaml.Node) (Destination, error) {
	d := Destination{Name: key.Value, Timeout: defaultTimeout}
	saysFacts := false
	read := map[string]func(*yaml.Node) error{
		"certificate": r.file("certificate", &d.Files.Certificate), "key": r.file("key", &d.Files.Key),
		"ca": r.file("ca", &d.Files.CA), "token_file": r.file("token_file", &d.Files.Token),
		"agent_runs": func(n *yaml.Node) error {
			if n.ShortTag() != "!!bool" || n.Decode(&d.AgentRuns) != nil {
				return r.error(n, "agent_runs %q must be true or false", n.Value)
			}
			return nil
		},
		"facts": func(n *yaml.Node) error {
			saysFacts = true
			if n.ShortTag() != "!!bool" || n.Decode(&d.Facts) != nil {
				return r.error(n, "facts %q must be true or false", n.Value)
			}
			return nil
		},
		"format": func(n *yaml.Node) error {
			if d.Format = n.Value; d.Format != formatYAML && d.Format != formatJSON {
				return r.error(n, "format %q must be yaml or json", n.Value)
			}
			return nil
		},
		"timeout": func(n *yaml.Node) (err error) {
			if d.Timeout, err = time.ParseDuration(n.Value); err != nil || d.Timeout < time.Second || d.Timeout > 10*time.Minute {
				return r.error(n, "timeout %q must be a duration from 1s to 10m", n.Value)
			}
			return nil
		},
	}
	for _, kind := range []string{PuppetDB, Foreman, HTTP} {
		read[kind] = func(n *yaml.Node) (err error) {
			if d.Kind != "" {
				return r.error(n, "destination %q is both %s and %s: write two destinations", d.Name, d.Kind, kind)
			}
			d.Kind = kind
			d.URL, err = r.url(n)
			return err
		}
	}
	if err := r.members(n, read); err != nil {
		return d, err
	}
	switch {
	case d.Kind == "":
		return d, r.error(key, "destination %q has no address: add puppetdb: URL, foreman: URL or http: URL", d.Name)
	case (d.Files.Certificate == "") != (d.Files.Key == ""):
		return d, r.error(key, "destination %q: certificate and key belong together", d.Name)
	case d.URL.Scheme == "http" && (d.Files.Certificate != "" || d.Files.CA != ""):
		return d, r.error(key, "destination %q: with http: the keys certificate, key and ca have no effect; use https", d.Name)
	case d.Format != "" && d.Kind != HTTP:
		return d, r.error(key, "destination %q: only http has a format", d.Name)
	case saysFacts && d.Kind != PuppetDB:
		return d, r.error(key, "destination %q: only puppetdb gets facts", d.Name)
	case d.Kind == HTTP && d.Format == "":
		d.Format = formatYAML
	case d.Kind == PuppetDB && !saysFacts:
		d.Facts = true
	}
	return d, nil
}

// The method `file` reads the path of a file. The error does not repeat the value, because it may be the secret itself.
func (r reader) file(key string, to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if *to = n.Value; !filepath.IsAbs(n.Value) {
			return r.error(n, "%s must be the absolute path of a file", key)
		}
		return nil
	}
}

// The method `url` reads an address. Only a loopback address may do without TLS.
func (r reader) url(n *yaml.Node) (*url.URL, error) {
	u, err := url.Parse(n.Value)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, r.error(n, "the address must be a URL such as https://puppetdb.example.org:8081")
	case u.User != nil:
		return nil, r.error(n, "the address must not have a password: write the token into a file, and name it by token_file")
	case u.Port() != "" && !isPort(u.Port()):
		return nil, r.error(n, "the address has the port %s; a port is a number from 1 to 65535", u.Port())
	case u.Fragment != "":
		return nil, r.error(n, "the address must not have a #")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, r.error(n, "http to %q would send reports in clear text: use https, or a proxy on localhost", u.Hostname())
	}
	return u, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
