package fleet

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The method `duration` reads a positive duration.
func (r *reader) duration(n *yaml.Node, what string) time.Duration {
	d, ok := r.anyDuration(n, what)
	if ok && d <= 0 {
		r.report(follow(n), "without the key, the default is used", "%s: %s must be positive", what, follow(n).Value)
	}
	return d
}

// anyDuration reads a duration in Go's format. The method refuses a bare number without a unit, because some
// people would mean seconds and other people minutes. The method returns false if it has reported a problem.
func (r *reader) anyDuration(n *yaml.Node, what string) (time.Duration, bool) {
	n = follow(n)
	switch {
	case n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float"):
		r.report(n, "with a unit: "+n.Value+"s, or "+n.Value+"m", "%s: the bare number %s", what, n.Value)
		return 0, false
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		r.wrong(n, what, "a duration like 60s")
		return 0, false
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil {
		r.report(n, "like 60s, 10m or 1h30m", "%s: %q is not a duration", what, n.Value)
	}
	return d, err == nil
}

// Duration formats a duration without zero units: 1h, not 1h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
