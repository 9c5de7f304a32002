package embed_test

import (
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
