package server

import (
	"testing"
	"time"
)

func TestRest(t *testing.T) {
	cases := map[string]struct {
		reason     string
		nodes      int
		took, want time.Duration
	}{
		"few":  {"small fleets are decided on at once, however busy the machine is", 500, time.Second, 0},
		"many": {"a fifth of the writer's time", 10_000, 100 * time.Millisecond, 400 * time.Millisecond},
		"most": {"and yet soon", 10_000, time.Minute, 2 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := rest(tc.nodes, tc.took); got != tc.want {
				t.Errorf("%s: %s after %d nodes in %s, want %s", tc.reason, got, tc.nodes, tc.took, tc.want)
			}
		})
	}
}
