package promtest

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Need returns the path of a program of Debian's package prometheus. It skips the test if the program is missing and the
// test does not run as root: root installs it with script/install-deps.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Geteuid() != 0:
		t.Skipf("%s is missing; as root: apt-get install --no-install-recommends prometheus", program)
	default:
		t.Fatalf("%s is missing; run script/install-deps", program)
	}
	return path
}

// Scrape is what a server printed at one time.
type Scrape struct {
	Text   string
	At     time.Time
	Values map[string]float64 // by name and labels, as printed
	types  map[string]string  // by name
}

// Read reads what a server printed.
func Read(t testing.TB, text string, at time.Time) Scrape {
	t.Helper()
	s := Scrape{Text: text, At: at, Values: map[string]float64{}, types: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if words := strings.Fields(line); len(words) == 4 && words[0] == "#" && words[1] == "TYPE" {
			s.types[words[2]] = words[3]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if cut < 0 || err != nil {
			t.Fatalf("the server printed %q: %v", line, err)
		}
		s.Values[line[:cut]] = value
	}
	return s
}

// Names returns the names of the server's own metrics, with the names that a histogram prints.
func (s Scrape) Names() map[string]bool {
	out := map[string]bool{}
	for key := range s.Values {
		name, _, _ := strings.Cut(key, "{")
		if strings.HasPrefix(name, "tutti_") {
			out[name] = true
		}
	}
	return out
}

// The method `grows` reports whether a series is part of a counter or a histogram.
func (s Scrape) grows(key string) bool {
	name, _, _ := strings.Cut(key, "{")
	for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
		if kind := s.types[strings.TrimSuffix(name, suffix)]; kind == "histogram" || kind == "counter" && suffix == "" {
			return true
		}
	}
	return false
}

// Expr is one expression with its place.
type Expr struct{ Where, Expr string }

var nameRE = regexp.MustCompile(`\btutti_[a-z_]+\b`)

// Unknown returns the metrics in the expressions that the server does not print.
func Unknown(exprs []Expr, printed map[string]bool) []string {
	var out []string
	for _, e := range exprs {
		for _, name := range nameRE.FindAllString(e.Expr, -1) {
			if !printed[name] {
				out = append(out, e.Where+": "+name)
			}
		}
	}
	return out
}

// Rules are the alerts of a file, in order.
func Rules(t testing.TB, file string) []Expr {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(raw, &parsed); err != nil {
		t.Fatal(err)
	}
	var out []Expr
	for _, g := range parsed.Groups {
		for _, r := range g.Rules {
			out = append(out, Expr{r.Alert, r.Expr})
		}
	}
	return out
}

// Case shows one alert silent, and then firing.
type Case struct {
	Alert string
	// Quiet is what a server printed when all was well. Loud is what a server printed when it was not. A counter goes
	// on to grow by the difference of the two in each minute.
	Quiet, Loud Scrape
	Down        bool          // Prometheus cannot scrape the server in the end
	After       time.Duration // the alert must fire this long after the change
}

const quietFor = 10 // minutes, in a test of a rule

// Alerts runs `promtool test rules` with the cases.
func Alerts(t testing.TB, rules string, cases ...Case) {
	t.Helper()
	promtool := Need(t, "promtool")
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type check struct {
		Expr    string   `yaml:"expr"`
		At      string   `yaml:"eval_time"`
		Samples []sample `yaml:"exp_samples"`
	}
	type series struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type group struct {
		Name     string   `yaml:"name"`
		Interval string   `yaml:"interval"`
		Input    []series `yaml:"input_series"`
		Checks   []check  `yaml:"promql_expr_test"`
	}
	used := map[string]bool{}
	for _, r := range Rules(t, rules) {
		for _, name := range nameRE.FindAllString(r.Expr, -1) {
			used[name] = true
		}
	}
	var groups []group
	for _, c := range cases {
		g := group{Name: c.Alert, Interval: "1m"}
		up := "1+0x200"
		if c.Down {
			up = fmt.Sprintf("1+0x%d 0+0x200", quietFor-1)
		}
		g.Input = append(g.Input, series{`up{job="tutti",instance="server"}`, up})
		for _, key := range c.keys() {
			if name, _, _ := strings.Cut(key, "{"); used[name] {
				g.Input = append(g.Input, series{labelled(key), c.values(key)})
			}
		}
		firing := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"}) > bool 0`, c.Alert)
		g.Checks = []check{
			{firing, fmt.Sprintf("%dm", quietFor-1), []sample{}},
			{firing, fmt.Sprintf("%dm", quietFor+int(c.After.Minutes())), []sample{{"{}", 1}}},
		}
		groups = append(groups, g)
	}
	raw, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": groups})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "alerts.test.yml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

func (c Case) keys() []string {
	var out []string
	for key := range c.Quiet.Values {
		out = append(out, key)
	}
	for key := range c.Loud.Values {
		if _, both := c.Quiet.Values[key]; !both {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// The method `values` returns the values of a series, one for each minute.
func (c Case) values(key string) string {
	const missing = "_ "
	quiet, was := c.Quiet.value(key)
	loud, is := c.Loud.value(key)
	out := strings.Repeat(missing, quietFor)
	if was {
		out = fmt.Sprintf("%s+0x%d ", number(quiet), quietFor-1)
	}
	switch {
	case !was && (!is || c.Down):
		return out
	case !is || c.Down:
		return out + "stale" // as Prometheus does when a series is missing in a scrape
	case was && c.Loud.grows(key):
		return out + fmt.Sprintf("%s+%sx200", number(loud), number(max(0, loud-quiet)))
	}
	return out + number(loud) + "+0x200"
}

// The method `value` returns a value of the scrape. Promtool's clock begins at 0, so a point in time is relative to the
// scrape.
func (s Scrape) value(key string) (float64, bool) {
	v, is := s.Values[key]
	if name, _, _ := strings.Cut(key, "{"); strings.HasSuffix(name, "_timestamp_seconds") {
		v -= float64(s.At.Unix())
	}
	return v, is && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// The function `labelled` adds the labels that Prometheus adds to each series of a server.
func labelled(key string) string {
	name, labels, _ := strings.Cut(key, "{")
	labels = strings.TrimSuffix(labels, "}")
	if labels != "" {
		labels += ","
	}
	return name + "{" + labels + `job="tutti",instance="server"}`
}

// CheckMetrics runs `promtool check metrics`, which must say nothing.
func CheckMetrics(t testing.TB, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Need(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewBufferString(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
