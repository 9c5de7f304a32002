package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestWhoMayNotJoinDoesNotWaitForTheWriter: strangers who try again and again are counted beside it, so that nobody waits for them
// there. Here it is at work on something else, and they are answered.
func TestWhoMayNotJoinDoesNotWaitForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Log = log })
		stranger := &servertest.Node{Name: "db-01", Key: servertest.Key("db-01"), Fleet: f}
		join := func() error {
			_, err := f.Enrol(t.Context(), stranger.Request(tutti.CreatedToken{Token: "none", Text: "none"}))
			return err
		}
		wantCode(t, join(), tutti.CodeRefused, "is not known to the server") // has an entry
		log.hold.Store(true)
		set, refused := make(chan error, 1), make(chan error, 1)
		go func() { set <- f.SetValue(servertest.Operator(), "shared/x", []byte("1")) }()
		synctest.Wait()
		go func() { refused <- join() }()
		synctest.Wait()
		if len(refused) != 1 {
			t.Error("a stranger waits for the writer")
		}
		log.hold.Store(false)
		close(log.pass)
		if err := <-set; err != nil {
			t.Error(err)
		}
		wantCode(t, <-refused, tutti.CodeRefused, "is not known to the server")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
