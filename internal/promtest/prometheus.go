package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Prometheus is a running Prometheus.
type Prometheus struct {
	url  string
	said *bytes.Buffer
}

// Start runs Prometheus on an address with a configuration until the test ends.
func Start(t testing.TB, address, config string) *Prometheus {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Prometheus{url: "http://" + address, said: &bytes.Buffer{}}
	cmd := exec.CommandContext(t.Context(), Need(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = p.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", p.said)
		}
	})
	return p
}

// Until asks all expressions again and again, until each has at least one sample. It returns the expressions that have
// none when ctx ends, with the last answers.
func (p *Prometheus) Until(ctx context.Context, exprs []Expr) []string {
	open := exprs
	for {
		var rest []Expr
		var why []string
		for _, e := range open {
			if err := p.ask(ctx, e.Expr); err != nil {
				rest, why = append(rest, e), append(why, fmt.Sprintf("%s: %s: %v", e.Where, e.Expr, err))
			}
		}
		if open = rest; len(open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *Prometheus) ask(ctx context.Context, expr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var out struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return err
	}
	if out.Error != "" || len(out.Data.Result) == 0 {
		return fmt.Errorf("no answer %s", out.Error)
	}
	return nil
}

var rateRE = regexp.MustCompile(`\$__rate_interval`)

// Dashboard returns the expressions of a dashboard of Grafana, for a server with this instance.
func Dashboard(t testing.TB, file, instance string) []Expr {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &parsed); err != nil {
		t.Fatal(err)
	}
	var out []Expr
	for _, p := range parsed.Panels {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(rateRE.ReplaceAllString(target.Expr, "1m"), "$instance", instance)
			out = append(out, Expr{p.Title, expr})
		}
	}
	return out
}
