package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/tutti-project/tutti/internal/doctor"
)

// Certificate reads the end date of the certificate in a file. Ends is zero if Certificate cannot read the file. The
// argument `notice` is how long before the end date doctor begins to report the certificate. The argument `mend`
// says what to do then.
func Certificate(name, path string, notice time.Duration, mend string) doctor.Credential {
	c := doctor.Credential{Name: name, File: path, Notice: notice, Mend: mend}
	raw, _ := os.ReadFile(path)
	if block, _ := pem.Decode(raw); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			c.Ends = cert.NotAfter
		}
	}
	return c // an unreadable certificate counts as ended
}

// Link makes a TLS connection to a server within [Timeout]. It sends no request.
func Link(ctx context.Context, address string, config *tls.Config) doctor.Link {
	out := doctor.Link{Address: address}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	out.Err = err
	_, out.WrongCA = errors.AsType[*tls.CertificateVerificationError](err)
	return out
}

// Clock returns the server's time. Clock returns the zero time if the server does not
// answer within [Timeout].
func Clock(ctx context.Context, url string, config *tls.Config) time.Time {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return time.Time{}
	}
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return time.Time{}
	}
	defer resp.Body.Close()
	at, _ := http.ParseTime(resp.Header.Get("Date"))
	return at
}
