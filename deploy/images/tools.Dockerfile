# The image of the tools, on top of the reaper's, which has the revision and the version that this one has too.
ARG REAPER
FROM ${REAPER}
LABEL org.opencontainers.image.title="sexton-tools" \
      org.opencontainers.image.description="The sexton command with all that it can do, the demo's broker too"
ENV SEXTON_METRICS_BIND=127.0.0.1 \
    SEXTON_METRICS_PORT=
HEALTHCHECK NONE
ENTRYPOINT ["entrypoint", "sexton"]
CMD ["--help"]
COPY packages/ /
