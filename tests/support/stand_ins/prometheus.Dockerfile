# With the interface of prom/prometheus; its context is the folder of the unpacked package.
ARG BASE
FROM ${BASE}
COPY prometheus /bin/prometheus
USER 10001:0
WORKDIR /tmp
ENTRYPOINT ["/bin/prometheus"]
