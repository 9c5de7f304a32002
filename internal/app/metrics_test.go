package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/promtest"
)

const rulesFile = "../../deploy/prometheus/tutti.rules.yml"

// measured is a complete server on loopback with a door for Prometheus.
type measured struct {
	stored
	server *Server
}

// startMeasured starts a server that is in the directory of `s`.
func startMeasured(t *testing.T, s stored) *measured {
	t.Helper()
	m := &measured{stored: s}
	m.socket = filepath.Join(t.TempDir(), "s")
	var err error
	m.server, err = NewServer(ServerOptions{Dir: m.dir, Socket: m.socket, Metrics: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *measured) url() string { return "http://" + m.server.MetricsAddr().String() + "/metrics" }

// The method `until` scrapes until the server prints something that the test waits for.
func (m *measured) until(t *testing.T, what string, is func(promtest.Scrape) bool) promtest.Scrape {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		status, text := get(t, http.DefaultClient, m.url())
		if s := promtest.Read(t, text, time.Now()); status == http.StatusOK && is(s) {
			return s
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			t.Fatalf("the server never printed %s", what)
		}
	}
}

// The function `whole` reports whether a scrape has the numbers of the fleet, of the machine and of the calls.
func whole(s promtest.Scrape) bool {
	for _, key := range []string{`tutti_nodes{state="good"}`, "tutti_log_bytes", `tutti_http_total{call="metrics",ok="true"}`} {
		if _, is := s.Values[key]; !is {
			return false
		}
	}
	return true
}

func get(t *testing.T, c *http.Client, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// TestPrometheusScrapes checks who gets the metrics of a real server, and who gets profiles. Promtool has nothing to say
// about the metrics.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	m := startMeasured(t, initStored(t))
	printed := m.until(t, "everything", whole)
	promtest.CheckMetrics(t, printed.Text)
	if n := len(printed.Values); n > 800 {
		t.Errorf("%d series, want at most 800", n)
	}
	if unknown := promtest.Unknown(promtest.Rules(t, rulesFile), printed.Names()); len(unknown) > 0 {
		t.Errorf("the rules name metrics that the server does not print: %v", unknown)
	}
	bundle, err := identity.LoadOperator(m.operator)
	if err != nil {
		t.Fatal(err)
	}
	byCertificate := &http.Client{Transport: httpapi.Transport(bundle.TLS(), &net.Dialer{})}
	defer byCertificate.CloseIdleConnections()
	trusting, err := identity.ClientTLS(bundle.CA())
	if err != nil {
		t.Fatal(err)
	}
	stranger := &http.Client{Transport: httpapi.Transport(trusting, &net.Dialer{})}
	defer stranger.CloseIdleConnections()
	bySocket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	}}}
	defer bySocket.CloseIdleConnections()
	operators, scrapes := "https://"+m.server.Addr(), strings.TrimSuffix(m.url(), "/metrics")
	for _, step := range []struct {
		reason string
		by     *http.Client
		url    string
		status int
		says   string
	}{
		{"an operator's certificate", byCertificate, operators + "/metrics", 200, "tutti_nodes"},
		{"no certificate", stranger, operators + "/metrics", 401, "certificate"},
		{"root on the server", bySocket, "http://tutti/metrics", 200, "tutti_nodes"},
		{"the loopback address has no calls", http.DefaultClient, scrapes + "/v1/nodes/list", 404, ""},
		{"a name that a web page took over", http.DefaultClient, strings.Replace(m.url(), "127.0.0.1", "127-0-0-1.example.org", 1), 421, "own name"},
		{"root gets profiles", bySocket, "http://tutti/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"an operator gets none", byCertificate, operators + "/debug/pprof/goroutine?debug=1", 404, "no call"},
		{"the loopback address gets none", http.DefaultClient, scrapes + "/debug/pprof/goroutine?debug=1", 404, ""},
	} {
		by := step.by
		if step.status == http.StatusMisdirectedRequest {
			by = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, m.server.MetricsAddr().String())
			}, DisableKeepAlives: true}}
		}
		status, body := get(t, by, step.url)
		if status != step.status || !strings.Contains(body, step.says) {
			t.Errorf("%s: %d %.200s, want %d and %q", step.reason, status, body, step.status, step.says)
		}
	}
	again := m.until(t, "the call", func(s promtest.Scrape) bool { return s.Values[`tutti_http_total{call="metrics",ok="false"}`] == 1 })
	for key, want := range map[string]float64{
		`tutti_http_total{call="metrics",ok="true"}`: 2, `tutti_denied_total{kind="address"}`: 1,
	} {
		if got := again.Values[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// TestOnlyLoopbackHasNoCertificate checks the addresses of --metrics.
func TestOnlyLoopbackHasNoCertificate(t *testing.T) {
	s := initStored(t)
	for at, says := range map[string]string{
		"0.0.0.0:9150": "only an address of this machine", ":9150": "only an address of this machine", "[::]:9150": "only an address of this machine",
		"192.0.2.1:9150": "verb metrics", "monitor.example.org:9150": "only an address of this machine", "9150": "an address and a port",
	} {
		server, err := NewServer(ServerOptions{Dir: s.dir, Socket: "-", Metrics: at, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			server.close()
		}
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("--metrics %s: %v, want %q", at, err, says)
		}
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "127.8.8.8:0"} {
		if err := isLoopback(at); err != nil {
			t.Errorf("--metrics %s: %v", at, err)
		}
	}
}

// TestTheServersAlerts shows the alerts about the server's machine by what real servers print: one whose CA ends soon,
// and one on a small disk that gets full.
func TestTheServersAlerts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small disk needs root")
	}
	quiet := startMeasured(t, initStored(t)).until(t, "everything", whole)

	old := initStored(t)
	endCA(t, old, time.Now().Add(10*24*time.Hour))
	ends := startMeasured(t, old).until(t, "everything", whole)

	disk := smallDisk(t)
	small := initStoredIn(t, filepath.Join(disk, "server"))
	m := startMeasured(t, small)
	room := m.until(t, "everything", whole)
	fill(t, disk, room.Values["tutti_disk_free_bytes"]-1.5*room.Values["tutti_disk_reserve_bytes"])
	m.server.reserve.Stale()
	m.server.meters.SetHost(m.server.look(t.Context()))
	low := m.until(t, "a full disk", func(s promtest.Scrape) bool {
		return s.Values["tutti_disk_free_bytes"] < room.Values["tutti_disk_free_bytes"]/2
	})

	promtest.Alerts(t, rulesFile,
		promtest.Case{Alert: "TuttiCertificateEnds", Quiet: quiet, Loud: ends, After: time.Minute},
		promtest.Case{Alert: "TuttiDiskReserve", Quiet: room, Loud: low, After: 6 * time.Minute},
		promtest.Case{Alert: "TuttiDown", Quiet: quiet, Loud: quiet, Down: true, After: 3 * time.Minute},
	)
}

// TestAFullDiskIsStillMeasured checks what a server prints that has no room to serve: the disk, and no nodes.
func TestAFullDiskIsStillMeasured(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small disk needs root")
	}
	disk := smallDisk(t)
	s := initStoredIn(t, filepath.Join(disk, "server"))
	fill(t, disk, 1e12)
	m := startMeasured(t, s)
	got := m.until(t, "its disk", func(s promtest.Scrape) bool { _, is := s.Values["tutti_disk_free_bytes"]; return is })
	if _, printed := got.Values[`tutti_nodes{state="good"}`]; printed || got.Values["tutti_disk_free_bytes"] > got.Values["tutti_disk_reserve_bytes"] {
		t.Errorf("a server with a full disk prints:\n%s", got.Text)
	}
}

func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, fmt.Sprintf("size=%d", 96<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// The function `fill` writes a file of this size, or until the disk is full.
func fill(t *testing.T, disk string, bytesOf float64) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat([]byte("x"), 1<<16)
	for written := 0.0; written < bytesOf; written += float64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return // the disk is full
		}
	}
}

// The function `endCA` lets the CA of a server end at another time. The key stays.
func endCA(t *testing.T, s stored, at time.Time) {
	t.Helper()
	name := filepath.Join(s.dir, "identity", "ca.crt")
	blockOf := func(file string) []byte {
		raw, err := os.ReadFile(filepath.Join(s.dir, "identity", file))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(raw)
		return block.Bytes
	}
	ca, err := x509.ParseCertificate(blockOf("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(blockOf("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, is := private.(*ecdsa.PrivateKey)
	if !is {
		t.Fatalf("the CA's key is %T", private)
	}
	ca.NotAfter = at
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPrometheusAnswersTheDashboard lets a real Prometheus scrape a real server through both doors. Prometheus then has
// an answer for each expression of the dashboard, and reads the rules.
func TestPrometheusAnswersTheDashboard(t *testing.T) {
	t.Parallel()
	promtest.Need(t, "prometheus")
	s := initStored(t)
	s.trimmed(t) // so the server has a snapshot
	destination := "destinations:\n  archive: {http: \"http://localhost:9\"}\n"
	if err := os.WriteFile(filepath.Join(s.dir, "reports.yaml"), []byte(destination), 0o600); err != nil {
		t.Fatal(err)
	}
	m := startMeasured(t, s)
	whole := m.until(t, "everything", whole)
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	instance := m.server.MetricsAddr().String()
	dashboard := promtest.Dashboard(t, "../../deploy/grafana/tutti.json", instance)
	if unknown := promtest.Unknown(dashboard, whole.Names()); len(unknown) > 0 {
		t.Errorf("the dashboard names metrics that the server does not print: %v", unknown)
	}
	if len(dashboard) < 40 {
		t.Errorf("%d expressions are in the dashboard, want at least 40", len(dashboard))
	}
	prometheus := promtest.Start(t, bustest.Address(t), fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - job_name: tutti
    static_configs: [{targets: [%q]}]
  - job_name: operators
    scheme: https
    tls_config: {ca_file: %q, cert_file: %q, key_file: %q}
    static_configs: [{targets: [%q]}]
`, rules, instance, filepath.Join(s.operator, "ca.crt"), filepath.Join(s.operator, "operator.pem"), filepath.Join(s.operator, "operator.pem"), m.server.Addr()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, missing := range prometheus.Until(ctx, append(dashboard,
		promtest.Expr{Where: "by certificate", Expr: `up{job="operators"} == 1`},
		promtest.Expr{Where: "by certificate", Expr: `tutti_nodes{job="operators",state="good"}`},
	)) {
		t.Errorf("Prometheus has no answer: %s", missing)
	}
}
