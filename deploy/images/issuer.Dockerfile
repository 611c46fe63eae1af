# The image of the issuer. Its context is what `deploy/images/build` has laid out: nothing is fetched here.
ARG BASE=python:3.11-slim
FROM ${BASE}
RUN python3 -m venv --without-pip /opt/sexton
ENV PATH=/opt/sexton/bin:$PATH \
    SEXTON_ISSUER_BIND=0.0.0.0:8350
# No user of /etc/passwd: the image runs as any, and by default not as root.
USER 10001:0
WORKDIR /tmp
EXPOSE 8350
HEALTHCHECK --interval=5s --timeout=5s --start-period=300s --retries=3 \
  CMD ["python", "/opt/sexton/bin/healthcheck.py", "issuer"]
ENTRYPOINT ["sexton"]
CMD ["issuer", "serve"]
COPY packages/ /
COPY own/ /
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sexton-issuer" \
      org.opencontainers.image.description="Sexton's generation authority" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
