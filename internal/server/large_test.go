package server_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// A decoded list of empty objects needs up to a hundred times as much memory as its JSON. The server refuses such a
// message before it decodes the message, because the sender is not allowed to send the message, or because the list
// has too many elements.
func TestNoListGrowsInMemory(t *testing.T) {
	many := func(bytes int) string { return strings.Repeat("{},", bytes/3) + "{}" }
	few := many(900 << 10)
	for _, tc := range []struct {
		reason  string
		op      string
		payload func(run tutti.RunID) string
		code    tutti.Code
	}{
		{"waits without a grant", wire.OpCompiled, func(tutti.RunID) string { return `{"waits":[` + many(2<<20) + `]}` }, tutti.CodeRefused},
		{"lags without a grant", wire.OpCompiled, func(tutti.RunID) string { return `{"lags":[` + many(2<<20) + `]}` }, tutti.CodeRefused},
		{"exports without a run", wire.OpGate, func(tutti.RunID) string { return `{"exports":[` + many(2<<20) + `]}` }, tutti.CodeRefused},
		{"a foreign run", wire.OpForeign, func(tutti.RunID) string { return `{"result":{"waits":[` + many(2<<20) + `]}}` }, tutti.CodeInvalid},
		{"a foreign run of a megabyte", wire.OpForeign, func(tutti.RunID) string { return `{"result":{"waits":[` + few + `]}}` }, tutti.CodeInvalid},
		{"a result", wire.OpResult, func(run tutti.RunID) string { return fmt.Sprintf(`{"run":%q,"failures":[%s]}`, run, few) }, tutti.CodeInvalid},
		{"another key", wire.OpBox, func(tutti.RunID) string { return `{"pieces":[` + few + `]}` }, tutti.CodeInvalid},
		{"what goes on in no run", wire.OpLive, func(tutti.RunID) string { return `[` + many(250<<10) + `]` }, tutti.CodeRefused},
		{"what goes on", wire.OpLive, func(run tutti.RunID) string { return fmt.Sprintf(`[{"run":%q},%s]`, run, many(250<<10)) }, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			payload := []byte(tc.payload(order.Run))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := f.Handle(t.Context(), f.db.Key, tc.op, payload)
			runtime.ReadMemStats(&after)
			wantCode(t, err, tc.code, "")
			if used := after.TotalAlloc - before.TotalAlloc; used > uint64(len(payload))+1<<20 {
				t.Errorf("%d bytes allocated for a message of %d", used, len(payload))
			}
		})
	}
}

// From a compile host the server takes only the first waits and lags of a long list.
func TestTheFirstWaitsCount(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.Push(strings.Replace(twoSteps, "grants:", "grants:\n  - {to: web, compile: true, dangerous: true}", 1))
	lag := `{"node":"db-01","run":"` + string(order.Run) + `"}`
	payload := `{"run":"","for":"elsewhere","failed":true,"waits":[` + strings.Repeat(`{},`, 200_000) + `{}],"lags":[` + strings.Repeat(lag+",", 200) + lag + `]}`
	_, err := f.Handle(t.Context(), f.web1.Key, wire.OpCompiled, []byte(payload))
	wantCode(t, err, tutti.CodeRefused, "is not a run of") // the error must not be about the number of elements
}

// An honest agent sends at most 200 live messages at once.
func TestWhatGoesOnIsCountedForWhoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job, order := started(t, tutti.ModeApply)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() {
			watched <- f.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(api.Watched) error { return nil })
		}()
		synctest.Wait()
		for _, tc := range []struct {
			count int
			code  tutti.Code
		}{{200, ""}, {80_000, tutti.CodeInvalid}} {
			payload := fmt.Sprintf(`[{"run":%q}%s]`, order.Run, strings.Repeat(",{}", tc.count-1))
			_, err := f.Handle(t.Context(), f.db.Key, wire.OpLive, []byte(payload))
			wantCode(t, err, tc.code, "")
		}
		cancel()
		if err := <-watched; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeGatesHaveTheirShare checks that a node which sends the largest allowed gate must wait before it sends
// another one. In this test the node has used up most of its share, so a small gate has the effect of a large one.
func TestLargeGatesHaveTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		payload := []byte(fmt.Sprintf(`{"run":%q,"keys":[{"key":"x","found":"%s"}]}`, order.Run, strings.Repeat("x", 1<<20)))
		gate := func(n *servertest.Node) error {
			_, err := f.Handle(t.Context(), n.Key, wire.OpGate, payload)
			return err
		}
		f.SpendAllBut(f.db.Key, server.CostOfGate(len(payload))*3/2)
		wantCode(t, gate(f.db), tutti.CodeInvalid, "")
		wantCode(t, gate(f.db), tutti.CodeUnavailable, "ask again in")
		wantCode(t, gate(f.web1), tutti.CodeRefused, "is not a run of")
		time.Sleep(time.Second)
		wantCode(t, gate(f.db), tutti.CodeInvalid, "")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The largest gate costs more than half of a node's full share.
func TestTheLargestGateTakesMostOfAShare(t *testing.T) {
	all, largest := server.CostAtOnce, server.CostOfGate(server.LargestGate)
	if largest > all || largest <= all/2 {
		t.Errorf("the largest gate costs %d of %d", largest, all)
	}
}
