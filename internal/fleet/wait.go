package fleet

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// DefaultWaitTimeout is the timeout of a wait if the file has no timeout.
const DefaultWaitTimeout = 5 * time.Minute

// waitKind implements wait steps. A wait step waits for something outside Puppet.
type waitKind struct{}

// Wait implements tutti.StepTable.
func (kinds) Wait() stepKind { return waitKind{} }

func (waitKind) example() string { return "wait: {…}" }

// The method `read` returns the readers of a wait step. The timeout may be a key of the step, or a key inside the
// value of `wait`.
func (waitKind) read(r *reader) reading {
	w := waiting{reader: r, timeout: DefaultWaitTimeout}
	return reading{fields{
		"wait":    w.read,
		"timeout": w.readTimeout,
	}, func(d *draft, _ map[string]*yaml.Node) {
		d.Wait, d.target, d.Timeout = &w.spec, w.target, w.timeout
		if len(w.timeouts) > 1 {
			r.report(w.timeouts[1], "keep one of them", "the step and its wait both have a timeout, and they differ")
		}
	}}
}

func (waitKind) check(r *reader, d draft, before []tutti.Step) {
	r.refusePerNode(d, "leave `per` out", "a wait step has no nodes")
	if d.Wait.PuppetDB != "" && !slices.ContainsFunc(before, func(s tutti.Step) bool { return s.Kind() == tutti.StepRun }) {
		r.report(d.at, "put it after such a step, or add `after` with the step", "step %s: there is no run step before it whose catalogs it could wait for", d.Name)
	}
}

func (waitKind) does(s tutti.Step, _ []tutti.NodeName) string {
	switch {
	case s.Wait.HTTP != "":
		return "wait for http " + s.Wait.HTTP
	case s.Wait.TCP != "" || s.Wait.PuppetDB != "":
		return "wait for " + s.Wait.Subject()
	case s.Wait.Equals != nil:
		return fmt.Sprintf("wait for value %s = %s", s.Wait.Value, s.Wait.Equals)
	}
	return "wait for value " + s.Wait.Value
}

func (waitKind) options(s tutti.Step) []string { return []string{timeoutText(s)} }

// The type `waiting` is the state of a wait while the reader reads it.
type waiting struct {
	*reader
	spec     tutti.WaitStep
	target   string // the name for a step that has no name in the file
	timeout  time.Duration
	timeouts []*yaml.Node
}

func (w *waiting) readTimeout(n *yaml.Node) {
	w.timeouts = append(w.timeouts, n)
	w.timeout = w.duration(n, "timeout")
}

func (w *waiting) read(n *yaml.Node) {
	var kinds []string
	var equals *yaml.Node
	kind := func(name string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { kinds = append(kinds, name); read(n) }
	}
	ok := w.mapping(n, "wait", fields{
		"http": kind("http", func(n *yaml.Node) {
			w.spec.HTTP, w.target = w.http(n, "wait: http", "http://proxy-01:8080/healthcheck")
		}),
		"tcp": kind("tcp", func(n *yaml.Node) { w.spec.TCP, w.target = w.tcp(n) }),
		"puppetdb": kind("puppetdb", func(n *yaml.Node) {
			w.spec.PuppetDB, _ = w.http(n, "wait: puppetdb", "http://localhost:8080")
			w.target = "puppetdb"
		}),
		"value":   kind("value", func(n *yaml.Node) { w.spec.Value = w.key(n); w.target = w.spec.Value }),
		"equals":  func(n *yaml.Node) { equals = n; w.spec.Equals = w.json(n, "wait: equals") },
		"timeout": w.readTimeout,
	})
	switch {
	case !ok:
	case len(kinds) == 0:
		w.report(n, "add http: URL, tcp: HOST:PORT, puppetdb: URL or value: KEY", "wait: the thing to wait for is missing")
	case len(kinds) > 1:
		w.report(n, "make a separate step of each", "wait: %s: exactly one is needed", strings.Join(kinds, " and "))
	case equals != nil && w.spec.Value == "":
		w.report(equals, "", "wait: `equals` is only allowed together with `value`")
	}
}

// The method `http` returns the URL and its host.
func (r *reader) http(n *yaml.Node, what, like string) (string, string) {
	address, ok := r.text(n, what)
	if !ok {
		return "", ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		r.report(n, "like "+like, "%s: %q is not an http or https URL with a host", what, address)
		return address, ""
	}
	return address, u.Hostname()
}

// The method `tcp` returns the address and its host.
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
	r.report(n, "like storage-01:6200", "wait: tcp: %q is not of the form HOST:PORT", address)
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
