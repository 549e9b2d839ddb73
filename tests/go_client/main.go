// An HTTP client: posts so many bytes of text to a URL with an API key, and prints the status of the answer.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

func main() {
	url, key := os.Args[1], os.Args[2]
	size, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(bytes.Repeat([]byte("x"), size)))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "text/plain")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		log.Fatal(err)
	}
	fmt.Print(answer.StatusCode)
}
