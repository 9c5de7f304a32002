package embed_test

import (
	"crypto/tls"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

func TestSyncAlwaysIsTheDefault(t *testing.T) {
	for _, c := range []struct {
		reason string
		noSync bool
		want   bool
	}{
		{"nothing said: every acknowledged write is on disk", false, true},
		{"a test may give it up", true, false},
	} {
		b := bustest.StartWith(t, func(o *embed.Options) { o.NoSync = c.noSync })
		if got := b.Server.SyncAlways(); got != c.want {
			t.Errorf("%s: SyncAlways is %v, want %v", c.reason, got, c.want)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	for _, c := range []struct {
		reason string
		spoil  func(*embed.Options)
	}{
		{"no TLS", func(o *embed.Options) { o.TLS = nil }},
		{"no port", func(o *embed.Options) { o.Listen = "127.0.0.1" }},
		{"a port that is no number", func(o *embed.Options) { o.Listen = "127.0.0.1:nats" }},
		{"no operator", func(o *embed.Options) { o.Trust.Operator = "" }},
	} {
		o := embed.Options{}
		bustest.StartWith(t, func(good *embed.Options) { o = *good })
		c.spoil(&o)
		o.Dir = t.TempDir()
		s, err := embed.Start(o)
		if err == nil {
			s.Shutdown()
		}
		if tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: got %v, want an error with code invalid", c.reason, err)
		}
	}
}

// TestTheBusBoundsHandshakes: a handshake with the bus takes a place, and frees it later.
func TestTheBusBoundsHandshakes(t *testing.T) {
	var o embed.Options
	bustest.StartWith(t, func(good *embed.Options) { o = *good })
	config, err := embed.TLSOf(o)
	if err != nil {
		t.Fatal(err)
	}
	if config.GetConfigForClient == nil {
		t.Fatal("a handshake does not wait for a place")
	}
	for range 100 { // more than there are places
		own, err := config.GetConfigForClient(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.VerifyConnection(tls.ConnectionState{}); err != nil {
			t.Fatal(err)
		}
	}
}
