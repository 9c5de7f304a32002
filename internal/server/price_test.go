package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestEveryCostlyMessageIsPaidFor sends messages that make the server work, as fast as possible. After a few seconds of
// work the node must wait. Other nodes need not wait.
func TestEveryCostlyMessageIsPaidFor(t *testing.T) {
	for _, tc := range []struct {
		op      string
		payload any
		most    int // how many messages a node may send without a pause
	}{
		{wire.OpBox, wire.NewBox{BoxKey: strings.Repeat("x", 100_000)}, 30},
		{wire.OpLive, strings.Repeat("x", 100_000), 30},
		{wire.OpTrust, tutti.Pinned{}, 10_000},
		{wire.OpPieces, nil, 10_000},
		{wire.OpRenew, wire.Renew{}, 400},
		{wire.OpClaim, wire.Claim{}, 3_000},
		{wire.OpBlobPut, strings.Repeat("x", 1_000_000), 700},
	} {
		t.Run(tc.op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := servertest.Start(t)
				web, db := f.Join("web-01"), f.Join("db-01")
				paid := func(n *servertest.Node) bool {
					err := n.Call(tc.op, tc.payload, nil)
					return err == nil || !strings.Contains(err.Error(), "more than its share of comparisons and bytes")
				}
				count := 0
				for count <= tc.most && paid(web) {
					count++
				}
				if count > tc.most || count < 10 {
					t.Errorf("%d messages without a pause", count)
				}
				if !paid(db) {
					t.Error("another node must wait")
				}
				time.Sleep(time.Second)
				if !paid(web) {
					t.Error("the node must wait for more than a second")
				}
			})
		})
	}
}
