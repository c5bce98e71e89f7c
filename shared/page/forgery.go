package page

import (
	"errors"
	"net/http"
)

// ErrForged says that a request did not set out from a page of ours.
var ErrForged = errors.New("this was not asked for on a page of this site, and nothing was changed; open the page itself and do it there")

var crossOrigin = http.NewCrossOriginProtection()

// FromOurselves refuses a request that acts unless it comes from a page of the same origin. Where
// [http.CrossOriginProtection] lets pass what says nothing of where it comes from, this does not: every
// browser says it of a form.
func FromOurselves(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if crossOrigin.Check(r) != nil || site == "" && origin == "" || site != "" && site != "same-origin" {
		return ErrForged
	}
	return nil
}
