package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAnOperatorSetsFewValues checks the limit of values, because all values are in memory and in each snapshot.
// Removed and replaced values do not count any more.
func TestAnOperatorSetsFewValues(t *testing.T) {
	large := []byte(`"` + strings.Repeat("x", 127<<10) + `"`)
	for name, tc := range map[string]struct {
		value []byte
		most  int
	}{
		"many":  {[]byte("1"), 20_000},
		"large": {large, (64 << 20) / (len(large) + len("shared/app/00000"))},
	} {
		t.Run(name, func(t *testing.T) {
			says := fmt.Sprintf("operator app has set %d values", tc.most)
			whole := func(o *server.Options) { o.SnapshotEvery = 1 << 30 }
			f := newShop(t)
			f.Fleet = f.Restart(whole)
			app, ada := f.as("app", tutti.VerbData), f.as("ada", tutti.VerbData)
			key := func(i int) string { return fmt.Sprintf("shared/app/%05d", i) }
			var set []tutti.Body
			for i := range tc.most - 1 {
				if set = append(set, &tutti.ValueSet{Key: key(i), Value: tc.value}); len(set) == 5000 || i == tc.most-2 {
					if err := f.EmitBy("operator:app", set...); err != nil {
						t.Fatal(err)
					}
					set = nil
				}
			}
			if err := f.SetValue(app, key(tc.most-1), tc.value); err != nil {
				t.Fatalf("the last one: %v", err)
			}
			n := len(f.Events())
			refused := func() {
				t.Helper()
				err := f.SetValue(app, "shared/app/more", tc.value)
				wantCode(t, err, tutti.CodeConflict, says)
				wantCode(t, err, tutti.CodeConflict, "tutti data unset KEY")
			}
			refused()
			if got := f.Since(n); len(got) != 0 {
				t.Errorf("appended %v, want nothing", got)
			}
			if err := f.SetValue(app, key(1), []byte("2")); err != nil {
				t.Errorf("another value in the place of one: %v", err)
			}
			if err := f.SetValue(app, key(1), tc.value); err != nil {
				t.Errorf("and back: %v", err)
			}
			if err := f.SetValue(ada, "shared/app/more", tc.value); err != nil {
				t.Errorf("an admin: %v", err)
			}
			if name == "many" { // large values take long to fold
				f.Fleet = f.Restart(whole)
				app, ada = f.as("app", tutti.VerbData), f.as("ada", tutti.VerbData)
			}
			if err := f.UnsetValue(ada, "shared/app/more"); err != nil {
				t.Fatal(err)
			}
			refused()
			if err := f.UnsetValue(app, key(2)); err != nil {
				t.Fatal(err)
			}
			if err := f.SetValue(app, "shared/app/more", tc.value); err != nil {
				t.Errorf("after one was unset: %v", err)
			}
			if err := f.SetValue(ada, key(3), []byte("3")); err != nil { // now this key belongs to ada
				t.Fatal(err)
			}
			if err := f.SetValue(app, "shared/app/again", tc.value); err != nil {
				t.Errorf("after an admin has taken one over: %v", err)
			}
			f.Push(strings.Split(accessFleet, "access:")[0])
			if err := f.SetValue(app, "shared/app/free", tc.value); err != nil {
				t.Errorf("without access everybody is admin: %v", err)
			}
		})
	}
}

// TestAnOperatorSetsFewSecrets checks the limit of secrets, because each batch of pieces and each change of targets
// is an event that stays.
func TestAnOperatorSetsFewSecrets(t *testing.T) {
	v := newVault(t)
	v.Join("web-01", "web")
	v.source += "access:\n  - {to: ada, may: admin}\n  - {to: app, may: data, keys: [db/**]}\n"
	v.Push(v.source)
	if err := v.Emit(&tutti.OperatorIssued{Operator: "app", Serial: "serial", Expires: time.Now().AddDate(0, 0, 30)}); err != nil {
		t.Fatal(err)
	}
	app, leave, err := v.Admit(t.Context(), "app", "serial", tutti.VerbData)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	one := v.sealed("db/password", 1, `1`, "group:web")
	if err := v.SealSecret(app, one); err != nil {
		t.Fatal(err)
	}
	moved := one
	moved.Adds, moved.Moves, moved.Pieces, moved.Recovery = true, true, nil, make([]byte, 60<<10)
	for i := range 2000 {
		if err = v.SealSecret(app, moved); err != nil {
			if i < 1000 {
				t.Errorf("change %d of the targets: %v", i, err)
			}
			break
		}
	}
	wantCode(t, err, tutti.CodeConflict, `"db/password": operator app has set`)
	if err := v.SealSecret(servertest.Operator(), moved); err != nil {
		t.Errorf("an admin: %v", err)
	}
	if err := v.UnsetValue(app, "db/password"); err != nil {
		t.Fatal(err)
	}
	if err := v.SealSecret(app, v.sealed("db/password", 2, `1`, "group:web")); err != nil {
		t.Errorf("after it was unset: %v", err)
	}
}
