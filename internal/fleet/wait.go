package fleet

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// The timeouts of steps without one in the file.
const (
	DefaultRunTimeout  = time.Hour
	DefaultWaitTimeout = 5 * time.Minute
)

// wait reads what a wait step waits for. Its timeout may stand inside, too.
func (r *reader) wait(n *yaml.Node, d *draft) {
	var wait tutti.WaitStep
	var kinds []string
	var equals *yaml.Node
	kind := func(name string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { kinds = append(kinds, name); read(n) }
	}
	ok := r.mapping(n, "wait", fields{
		"http": kind("http", func(n *yaml.Node) {
			wait.HTTP, d.target = r.http(n, "wait: http", "http://proxy-01:8080/healthcheck")
		}),
		"tcp": kind("tcp", func(n *yaml.Node) { wait.TCP, d.target = r.tcp(n) }),
		"puppetdb": kind("puppetdb", func(n *yaml.Node) {
			wait.PuppetDB, _ = r.http(n, "wait: puppetdb", "http://localhost:8080")
			d.target = "puppetdb"
		}),
		"value":   kind("value", func(n *yaml.Node) { wait.Value = r.key(n); d.target = wait.Value }),
		"equals":  func(n *yaml.Node) { equals = n; wait.Equals = r.json(n, "wait: equals") },
		"timeout": func(n *yaml.Node) { d.timeouts = append(d.timeouts, n) },
	})
	d.Wait = &wait
	switch {
	case !ok:
	case len(kinds) == 0:
		r.report(n, "add http: URL, tcp: HOST:PORT, puppetdb: URL or value: KEY", "wait: for what is missing")
	case len(kinds) > 1:
		r.report(n, "make a step of each", "wait: %s: exactly one is needed", strings.Join(kinds, " and "))
	case equals != nil && wait.Value == "":
		r.report(equals, "", "wait: equals belongs to value")
	}
}

// http returns the URL and its host.
func (r *reader) http(n *yaml.Node, what, like string) (string, string) {
	address, ok := r.text(n, what)
	if !ok {
		return "", ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		r.report(n, "like "+like, "%s: %q is no http or https URL with a host", what, address)
		return address, ""
	}
	return address, u.Hostname()
}

// tcp returns the address and its host.
func (r *reader) tcp(n *yaml.Node) (string, string) {
	address, ok := r.text(n, "wait: tcp")
	if !ok {
		return "", ""
	}
	u, err := url.Parse("//" + address)
	if err == nil && u.Host == address && u.Hostname() != "" {
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil && port > 0 {
			return address, u.Hostname()
		}
	}
	r.report(n, "like storage-01:6200", "wait: tcp: %q is no HOST:PORT", address)
	return address, ""
}

func (r *reader) key(n *yaml.Node) string {
	key, ok := r.text(n, "wait: value")
	if ok {
		if err := tutti.ValidateKey(key); err != nil {
			r.reportErr(n, "wait: value: ", err)
		}
	}
	return key
}

// timeout gives a step its timeout, or the default of its kind.
func (r *reader) timeout(d *draft) {
	d.Timeout = DefaultRunTimeout
	if d.Wait != nil {
		d.Timeout = DefaultWaitTimeout
	}
	if len(d.timeouts) > 1 {
		r.report(d.timeouts[1], "keep one of them", "the step has a timeout, and its wait another one")
	}
	for _, n := range d.timeouts {
		d.Timeout = r.duration(n, "timeout")
	}
}

// duration reads what Go reads as a duration. A bare number has no unit and is
// refused: in this field some read seconds and some minutes.
func (r *reader) duration(n *yaml.Node, what string) time.Duration {
	n = follow(n)
	switch {
	case n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float"):
		r.report(n, "with a unit: "+n.Value+"s, or "+n.Value+"m", "%s: the bare number %s", what, n.Value)
		return 0
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		r.wrong(n, what, "a duration like 60s")
		return 0
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil {
		r.report(n, "like 60s, 10m or 1h30m", "%s: %q is no duration", what, n.Value)
	} else if d <= 0 {
		r.report(n, "leave the key out for the default", "%s: %s; it must be longer than nothing", what, n.Value)
	}
	return d
}
