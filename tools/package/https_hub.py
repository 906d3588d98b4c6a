"""Plays Hugging Face by https on 127.0.0.1, with models/tiny as its only repository.

Writes FOLDER/authority.pem, the certificate to trust, then prints the address; ends when its input does.

    python3 -m tools.package.https_hub FOLDER
"""

import http.server
import ssl
import subprocess
import sys
import threading

from tools.reference.hub_check import Hub


def main(folder):
    certificate, key = f"{folder}/authority.pem", f"{folder}/key.pem"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run(make.split(), check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"https://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
